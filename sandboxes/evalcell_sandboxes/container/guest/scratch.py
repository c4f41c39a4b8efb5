"""The one place that can be written to: /tmp. What a row leaves there is removed, what the module left is kept."""

import contextlib
import os
import stat

PLACE = "/tmp"


class Scratch:
    """Knows what was there when the module had been loaded."""

    def __init__(self, place: str = PLACE) -> None:
        self._place = place
        self._kept = {}
        self._blocks = self._used()

    def remember(self) -> None:
        """Makes what is there now what every row finds."""
        self._kept = dict(self._entries())
        self._blocks = self._used()

    def restore(self) -> bool:
        """Removes what is new. False when something else than that has changed, or cannot be undone.

        Files that were removed and are still held open, as by the process that every row starts from, take up room.
        """
        if not self._kept and self._used() == self._blocks:
            return True
        self._remove_new()
        return dict(self._entries()) == self._kept and self._used() == self._blocks

    def empty(self) -> bool:
        """Removes everything. False when that cannot be done."""
        self._kept = {}
        self._remove_new()
        return not os.listdir(self._place)

    def _remove_new(self) -> None:
        for path in sorted(dict(self._entries()).keys() - self._kept.keys(), reverse=True):
            _remove(path)

    def _entries(self):
        """Every path with what tells that it has changed; the time of the last change of state cannot be forged."""
        waiting = [self._place]
        while waiting:
            try:
                with os.scandir(waiting.pop()) as entries:
                    for entry in entries:
                        status = entry.stat(follow_symlinks=False)
                        is_directory = stat.S_ISDIR(status.st_mode)
                        told = () if is_directory else (status.st_size, status.st_ctime_ns)
                        yield entry.path, (status.st_ino, status.st_mode, *told)
                        if is_directory:
                            self._open(entry.path)
                            waiting.append(entry.path)
            except OSError:  # not to be looked into: it is seen that the room it takes is not given back
                continue

    def _open(self, path: str) -> None:
        """A directory that a row has shut must not keep what is in it. No other process is there to play tricks."""
        if path not in self._kept:
            os.chmod(path, 0o700)

    def _used(self) -> tuple:
        room = os.statvfs(self._place)
        return room.f_blocks - room.f_bfree, room.f_files - room.f_ffree


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.lstat(path).st_mode):
            os.rmdir(path)
        else:
            os.unlink(path)
