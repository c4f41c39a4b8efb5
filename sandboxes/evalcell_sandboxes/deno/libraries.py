"""Which files a program needs before its first instruction, so that a process can be left with these alone."""

import functools
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

from evalcell_sandboxes.errors import SandboxFault

_ELF_HEADER = struct.Struct("<4sBB26xQ14xHH")
_SEGMENT = struct.Struct("<II6Q")
_64_BIT, _LITTLE_ENDIAN, _INTERPRETER = 2, 1, 3
_FOUND = re.compile(rb"=> (/.*) \(0x")


@functools.cache
def needed(program: str, environment: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """The loader that a program names, and the libraries that it will load then; nothing of one that needs none."""
    loader = _loader(Path(program)) if sys.platform == "linux" else None
    if loader is None:
        return ()
    asked = subprocess.run(
        [loader, "--list", program], env=dict(environment), cwd="/", capture_output=True, check=False
    )
    if asked.returncode:
        raise SandboxFault(f"The libraries of {program!r} cannot be found: {asked.stderr.decode(errors='replace')}")
    return (loader, *map(os.fsdecode, _FOUND.findall(asked.stdout)))


def _loader(program: Path) -> str | None:
    """What an ELF file names as its interpreter."""
    with program.open("rb") as file:
        magic, bits, order, table, size, count = _ELF_HEADER.unpack(file.read(_ELF_HEADER.size))
        if (magic, bits, order) != (b"\x7fELF", _64_BIT, _LITTLE_ENDIAN):
            return None
        file.seek(table)
        segments = [_SEGMENT.unpack_from(file.read(size)) for _ in range(count)]
        for kind, _, offset, _, _, length, *_ in segments:
            if kind == _INTERPRETER:
                file.seek(offset)
                return os.fsdecode(file.read(length).rstrip(b"\0"))
    return None
