"""The shared libraries that native code of this host needs to run elsewhere."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from evalcell_sandboxes.errors import SandboxUnavailable
from evalcell_sandboxes.site import bare

_WHEELS_EXPECT = (
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libgomp.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
    "libresolv.so.2",
    "libz.so.1",
    "libexpat.so.1",
    "libnss_files.so.2",  # where /etc/passwd is read by a library of its own
)
"""What a manylinux wheel takes for granted, whether or not the interpreter needs it itself."""

_LINE = re.compile(r"^\s+(?:(?P<name>\S+) => )?(?P<path>/.*) \(0x[0-9a-f]+\)$", re.MULTILINE)


class Libraries(msgspec.Struct, frozen=True):
    """Which file to put where."""

    loader: Path
    """The program that loads the others. Its path is written into every executable, so it keeps it."""
    directory: Path
    """Where the loader looks unasked: beside the C library."""
    files: dict[str, Path]
    """By the name that programs ask for, where each is on this host."""


def needed(executable: Path, modules: Iterable[Path]) -> Libraries:
    """What the executable and the modules need, and what wheels expect to find.

    All libraries go into one directory. So two of the same name that differ cannot both be had, and are refused.

    Raises:
        SandboxUnavailable: This host is not one whose libraries can be found.
    """
    named = dict(_linked([executable]))
    if "libc.so.6" not in named or None not in named:
        raise SandboxUnavailable(
            "container",
            f"{str(executable)!r} is not linked with glibc, so it cannot be packed. "
            "Run evalcell with a Python that is, or name an image that the engine can pull.",
        )
    directory = named["libc.so.6"].parent
    files = {path.name: path for path in _expected(directory)}
    for name, path in _linked([executable, *modules, *files.values()]):
        if name is not None and not _same(files.setdefault(name, path), path):
            raise SandboxUnavailable(
                "container",
                f"this host's Python needs {str(files[name])!r} and {str(path)!r}, which cannot lie side by side. "
                "Run evalcell with another Python, or name an image that the engine can pull.",
            )
    return Libraries(named[None], directory, files)


def _expected(directory: Path) -> Iterator[Path]:
    """What there is of it, beside the C library or, where /lib is not a link to it, in the same place under /usr."""
    for name in _WHEELS_EXPECT:
        places = directory / name, Path("/usr", *directory.parts[1:], name)
        yield from [place for place in places if place.exists()][:1]


def _linked(objects: list[Path]) -> Iterator[tuple[str | None, Path]]:
    """Names and paths of libraries as the loader resolves them. The loader itself has no name."""
    command = shutil.which("ldd")
    if command is None:
        raise SandboxUnavailable(
            "container",
            "there is no `ldd` here to find the libraries of this host's Python with. "
            "Install it (on Debian: libc-bin), or name an image that the engine can pull.",
        )
    # It fails when one object of many is linked with nothing, which is no failure here.
    done = subprocess.run([command, *map(str, objects)], env=bare(), capture_output=True, text=True, check=False)
    for found in _LINE.finditer(done.stdout):
        name = found["name"]
        yield (Path(name).name if name else None), Path(found["path"])


def _same(one: Path, other: Path) -> bool:
    return one == other or one.resolve() == other.resolve() or one.read_bytes() == other.read_bytes()
