"""Weighs and removes trees of files that strangers have packed.

An archive may unpack to more than the disk holds, or to directories nested a thousand deep, on which everything that
walks by recursion fails, `shutil.rmtree` among it. Nothing here recurses, and nothing follows a link.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_ENTRY_BYTES = 1024
"""What a file weighs beside its content, so that a million empty ones weigh something too."""


class Growth:
    """The heaviest of some directories, each without what lay two levels deep in it when the watch began.

    uv's cache keeps every unpacked archive in a directory of its own on the second level, so what earlier runs left
    there is neither counted nor walked.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)
        self._before = frozenset(path for root in roots for path in _second_level(root))

    def weight(self) -> int:
        return max(weight(root, self._before) for root in self._roots)


def weight(root: Path, without: frozenset[str] = frozenset()) -> int:
    """The bytes of every file below a directory, and a little for each entry."""
    return sum(
        _ENTRY_BYTES + (0 if entry.is_dir(follow_symlinks=False) else _size(entry)) for entry in below(root, without)
    )


def discard(root: Path) -> None:
    """Removes a directory with all that is in it, as far as that is possible."""
    directories = [str(root)]
    for entry in below(root):
        if entry.is_dir(follow_symlinks=False):
            directories.append(entry.path)
        else:
            with suppress(OSError):
                Path(entry.path).unlink()
    for directory in reversed(directories):
        with suppress(OSError):
            Path(directory).rmdir()


def below(root: Path, without: frozenset[str] = frozenset()) -> Iterator[os.DirEntry[str]]:
    """Every entry below a directory, a directory always before what is in it."""
    found = [str(root)]
    while found:
        for entry in _entries(found.pop()):
            if entry.path in without:
                continue
            yield entry
            if entry.is_dir(follow_symlinks=False):
                found.append(entry.path)


def _second_level(root: Path) -> Iterator[str]:
    for bucket in _entries(str(root)):
        if bucket.is_dir(follow_symlinks=False):
            yield from (entry.path for entry in _entries(bucket.path))


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except OSError:
        return []  # renamed or removed since: what is written is moved into place while this looks on


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0
