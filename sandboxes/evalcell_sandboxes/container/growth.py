"""Weighs what a program writes while it runs, so that an archive that unpacks without end can be stopped."""

import os
from collections.abc import Iterator, Sequence
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
    """The bytes of every file below a directory, and a little for each entry. Follows no link."""
    total = 0
    open_directories = [str(root)]
    while open_directories:
        for entry in _entries(open_directories.pop()):
            if entry.path in without:
                continue
            total += _ENTRY_BYTES
            if entry.is_dir(follow_symlinks=False):
                open_directories.append(entry.path)
            else:
                total += _size(entry)
    return total


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
