"""Where slow work is kept: private directories, files that appear whole or not at all."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from evalcell_sandboxes.errors import SandboxFault

if TYPE_CHECKING:
    from evalcell_sandboxes.sandbox import Progress

VARIABLE = "EVALCELL_CACHE_DIR"


def cache_dir() -> Path:
    """`EVALCELL_CACHE_DIR`, or the user's cache directory. Created private; refused when others can write to it."""
    return private_dir(cache_path())


def cache_path() -> Path:
    """Where the cache is or would be; nothing is made."""
    configured = os.environ.get(VARIABLE)
    return Path(configured) if configured else _user_cache_dir()


def _user_cache_dir() -> Path:
    from platformdirs import user_cache_path  # not needed where the directory is configured

    return user_cache_path("evalcell", appauthor=False)


def private_dir(path: Path, variable: str = VARIABLE) -> Path:
    """Makes the directory for this user alone. The variable is what names another one.

    The cache holds native code that is executed on trust, and the data what its owner has granted. Whoever can write
    there can run code as this user, so a directory that belongs to, or can be written by, somebody else is refused.

    Raises:
        SandboxFault: It is refused, or cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.stat()
    except OSError as error:
        raise SandboxFault(
            f"The directory {str(path)!r} cannot be used: {error.strerror}. Set {variable} to a directory of your own."
        ) from error
    if info.st_uid != os.geteuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SandboxFault(
            f"The directory {str(path)!r} can be written by other users, so nothing in it can be trusted. "
            f"Run `chmod 700 {path}` as its owner, or set {variable} to a directory of your own."
        )
    return path


@contextmanager
def alone(lock: Path, progress: "Progress", waiting_for: str) -> Iterator[None]:
    """Lets one process at a time do something; the others say what they wait for."""
    from filelock import FileLock, Timeout  # slow to import, and seldom needed

    held = FileLock(lock, mode=0o600)
    try:
        held.acquire(timeout=0)
    except Timeout:
        progress(f"Waiting for {waiting_for}")
        held.acquire()
    try:
        yield
    finally:
        held.release()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path that becomes `path` when the block ends well, and vanishes when it does not."""
    import tempfile  # slow, and seldom needed

    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
