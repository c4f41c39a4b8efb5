"""The compiled guest: one native module for this machine, made once and kept in the user's private cache.

Compiling takes about ten seconds and a gigabyte of memory, so it happens in a process of its own:

    python -m evalcell_sandboxes.wasm.module IMAGE TARGET

Whoever makes an image of an installation puts a module into the installation itself, so that nobody has to wait:

    python -m evalcell_sandboxes.wasm.module
"""

import contextlib
import gzip
import hashlib
import os
import platform
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from evalcell_sandboxes import disk
from evalcell_sandboxes.caching import alone, cache_dir, cache_path, private_dir, replacing
from evalcell_sandboxes.disk import Kept
from evalcell_sandboxes.errors import SandboxFault, SandboxUnavailable
from evalcell_sandboxes.sandbox import Progress, silent
from evalcell_sandboxes.site import bare
from evalcell_sandboxes.versions import installed
from evalcell_sandboxes.wasm import image
from evalcell_sandboxes.wasm.prereqs import unavailable_reason

# Part of the cache's key: change it with anything in `engine.py` that changes the compiled code.
_SETTINGS = "epoch-interruption 1"


def path() -> Path:
    """Where the compiled module for this machine lies, or will: in the installation, or else in the cache.

    A compiled module is native code that is run on trust. Its name holds all it depends on: wasmtime, our settings,
    the guest, and the processor, because a home directory may be shared by machines of different kinds.
    """
    packaged = _packaged()
    return packaged if packaged.exists() else private_dir(cache_dir() / "wasm") / _file_name(_processor())


def _packaged() -> Path:
    """Where an installation may carry a module. Whoever can write there can change this file as well."""
    return Path(__file__).resolve().parent / _file_name("any processor")


def _file_name(processor: str) -> str:
    parts = (installed("wasmtime") or "", _SETTINGS, image.identity(), platform.machine(), processor)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return f"{key}.cwasm"


def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        return platform.machine()


def prepare(progress: Progress) -> Path:
    """Gives the compiled module, making it first where it is missing. Of several processes, one makes it.

    Raises:
        SandboxUnavailable: There is no image to compile and none can be built.
    """
    compiled = path()
    if compiled.exists():
        with contextlib.suppress(OSError):  # whoever cannot write there cannot remove it either
            os.utime(compiled)
        return compiled
    with (
        alone(compiled.with_suffix(".lock"), progress, "another process that compiles the same"),
        disk.held(_held_as(image.file_name())),
    ):
        if not compiled.exists():
            source = _image(progress)
            progress("Compiling Python for this machine (once)")
            with replacing(compiled) as temporary:
                _run([sys.executable, "-P", "-m", __name__, str(source), str(temporary)], "compile the guest image")
    return compiled


def holding() -> AbstractContextManager[None]:
    """Keeps the module where it is."""
    return disk.held(_held_as(path().name))


def kept() -> list[Kept]:
    """Modules in the cache, of this version and of former ones, and the images that they were made of."""
    return disk.files("module", cache_path() / "wasm", "*.cwasm", "*.wasm.gz")


def discard(item: Kept) -> bool:
    """Removes one of them, unless it is in use."""
    return disk.discard_file(cache_path() / "wasm" / item.key, _held_as(item.key))


def _held_as(name: str) -> str:
    return f"module-{name}"


def _image(progress: Progress) -> Path:
    """The guest image: from the wheel, from the cache, or built into the cache."""
    if packaged := image.packaged():
        return packaged
    cached = private_dir(cache_dir() / "wasm") / image.file_name()
    if not cached.exists():
        if reason := unavailable_reason():
            raise SandboxUnavailable("wasm", reason)
        progress("Building the guest image (once)")
        with replacing(cached) as temporary:
            try:
                image.build(temporary, bare())
            except subprocess.CalledProcessError as error:
                raise SandboxFault(f"componentize-py could not build the guest image:\n{error.stderr}") from error
    return cached


def _run(command: list[str], purpose: str) -> None:
    done = subprocess.run(command, env=bare(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SandboxFault(f"Could not {purpose} (exit code {done.returncode}):\n{done.stderr[-2000:]}")


def _compile(source: Path, target: Path, *, any_processor: bool = False) -> None:
    from wasmtime.component import Component

    from evalcell_sandboxes.wasm.engine import make_engine

    with gzip.open(source, "rb") as stream:
        component = Component(make_engine(any_processor=any_processor), stream.read())
    target.write_bytes(component.serialize())


if __name__ == "__main__":
    if sys.argv[1:]:
        _compile(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        _compile(_image(silent), _packaged(), any_processor=True)
