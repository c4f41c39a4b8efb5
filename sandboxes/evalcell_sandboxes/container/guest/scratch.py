"""The one place that can be written to: /tmp. What a row leaves there is removed, what the module left is kept."""

import contextlib
import errno
import os
import stat

PLACE = "/tmp"


def nameless_file() -> int:
    """Opens a new file that nobody can find, to be handed to another process."""
    descriptor = _nameless()
    if not os.getuid():  # that process is another user's, who may want to open it once more, as /dev/stdout
        os.fchmod(descriptor, 0o666)
    return descriptor


def _nameless() -> int:
    """Where the kernel cannot make such a file, as gVisor, it has a name for a moment."""
    try:
        return os.open(PLACE, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    path = f"{PLACE}/{os.urandom(16).hex()}"
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    os.unlink(path)
    return descriptor


class Scratch:
    """Knows what was there when the module had been loaded."""

    def __init__(self, place: str = PLACE) -> None:
        self._place = place
        self._kept = {}
        self._times = {}
        self._blocks = self._used()
        self._counts_files = os.statvfs(place).f_files > 0  # gVisor does not, and an empty one takes up no room

    def remember(self) -> None:
        """Makes what is there now what every row finds."""
        self._kept = dict(self._entries(anything=True))
        self._blocks = self._used()
        self._times = {}
        for path, (_, mode, *_) in self._kept.items():
            if stat.S_ISDIR(mode):
                with contextlib.suppress(OSError):  # the module may still be at work on it
                    self._times[path] = _times(path)

    def restore(self) -> bool:
        """Removes what is new. False when something else than that has changed, or cannot be undone.

        Files that were removed and are still held open, as by the process that every row starts from, take up room.
        """
        if not self._kept and self._counts_files and self._used() == self._blocks:
            return True
        self._remove_new()
        return dict(self._entries()) == self._kept and self._used() == self._blocks and self._put_times_back()

    def empty(self) -> bool:
        """Removes everything. False when that cannot be done."""
        self._kept = {}
        self._remove_new()
        return not os.listdir(self._place)

    def _put_times_back(self) -> bool:
        """Of directories, in which rows may make files: else these times would be a place to leave a number in."""
        try:
            for path, times in self._times.items():
                if _times(path) != times:
                    os.utime(path, ns=times, follow_symlinks=False)
        except OSError:
            return False
        return True

    def _remove_new(self) -> None:
        for path in dict(self._entries()).keys() - self._kept.keys():
            with contextlib.suppress(OSError):
                self._remove(path)

    def _remove(self, path: str) -> None:
        """Removes a file or a tree, also one that was shut, or is so deep that the paths in it are too long to use.

        So directories are moved up before they are looked into. No other process is there to play tricks.
        """
        waiting = [path]
        while waiting:
            path = waiting[-1]
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                os.unlink(waiting.pop())
                continue
            os.chmod(path, 0o700)
            with os.scandir(path) as entries:
                found = list(entries)
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    os.chmod(entry.path, 0o700)
                    waiting.append(f"{self._place}/{os.urandom(16).hex()}")
                    os.rename(entry.path, waiting[-1])
                else:
                    os.unlink(entry.path)
            if path == waiting[-1]:
                os.rmdir(waiting.pop())

    def _entries(self, *, anything: bool = False):
        """Every path with what tells that it has changed; the time of the last change of state cannot be forged.

        What is in new directories is left out, unless `anything` counts: they go with all that is in them.
        """
        waiting = [self._place]
        while waiting:
            try:
                with os.scandir(waiting.pop()) as entries:
                    for entry in entries:
                        status = entry.stat(follow_symlinks=False)
                        is_directory = stat.S_ISDIR(status.st_mode)
                        told = () if is_directory else (status.st_size, status.st_ctime_ns)
                        yield entry.path, (status.st_ino, status.st_mode, *told)
                        if is_directory and (anything or entry.path in self._kept):
                            waiting.append(entry.path)
            except OSError:  # not to be looked into: it is seen that the room it takes is not given back
                continue

    def _used(self) -> tuple:
        room = os.statvfs(self._place)
        return room.f_blocks - room.f_bfree, room.f_files - room.f_ffree


def _times(path: str) -> tuple:
    status = os.lstat(path)
    return status.st_atime_ns, status.st_mtime_ns
