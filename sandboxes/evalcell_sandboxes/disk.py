"""What is kept on disk because it was slow to make, who uses it, and how it goes when others need the room.

Whoever uses something holds it, and whoever removes it must have it alone. The kernel keeps count of that: a process
that was killed holds nothing.
"""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from msgspec import Struct

from evalcell_sandboxes.caching import cache_dir, private_dir
from evalcell_sandboxes.errors import SandboxFault

_UNFINISHED_SECONDS = 3600.0
"""After so long, nobody is at work any more on a file that has not got its name yet."""
Kind = Literal["layer", "base", "module", "download", "asset"]


class Kept(Struct, frozen=True):
    """Something that is kept. `used` is when it was used last, in seconds since 1970.

    Whoever names several that were used at the same time names first what has to go first.
    """

    kind: Kind
    key: str
    size_bytes: int
    used: float


@contextmanager
def held(*keys: str) -> Iterator[None]:
    """Holds things while they are used: nobody removes them. Where nothing can be written, nothing can be removed.

    Raises:
        OSError: This process may not open any more files, which others may.
    """
    with ExitStack() as stack:
        for key in keys:
            try:
                _lock(stack, key, fcntl.LOCK_SH)
            except SandboxFault:
                continue
            except OSError as error:
                if error.errno == errno.EMFILE:  # which keeps nobody else from removing it
                    raise
        yield


@contextmanager
def alone_with(key: str) -> Iterator[bool]:
    """Says whether nobody holds it, and keeps it so meanwhile."""
    with ExitStack() as stack:
        try:
            _lock(stack, key, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (OSError, SandboxFault):  # somebody holds it, or nobody can write here
            yield False
        else:
            yield True


def files(kind: Kind, directory: Path, *patterns: str) -> list[Kept]:
    """Files that are kept, each used when it was changed, and what is left of those that nobody has finished."""
    found = []
    for path in (path for pattern in (*patterns, ".*") for path in directory.glob(pattern)):
        with contextlib.suppress(OSError):  # somebody has just removed it
            info = path.stat()
            if not path.name.startswith(".") or time.time() - info.st_mtime > _UNFINISHED_SECONDS:
                found.append(Kept(kind, path.name, info.st_size, info.st_mtime))
    return found


def discard_file(path: Path, held_as: str) -> bool:
    """Removes a file, unless somebody holds it."""
    with alone_with(held_as) as free:
        if free:
            path.unlink(missing_ok=True)
    return free


def _lock(stack: ExitStack, key: str, how: int) -> None:
    file = os.open(private_dir(cache_dir() / "uses") / key, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    stack.callback(os.close, file)  # which gives it up
    fcntl.flock(file, how)
