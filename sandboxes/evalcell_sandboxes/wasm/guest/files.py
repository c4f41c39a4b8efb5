"""The files that an evaluator ships, as a directory that can be read and not written to.

The host has no files for us, and to read through it would take milliseconds for a few kilobytes. So contents come
before the module is loaded and stay in memory, and what opens, looks at and lists files is answered from here where it
is about this directory. Everything else goes on to the host, which refuses it. Without assets nothing here is in place.
"""

import binascii
import builtins
import errno
import io
import os
import posixpath
import stat
import tarfile
import tokenize

_files = {}
"""Contents by path below the directory."""
_directories = {}
"""Names of entries by path below the directory, of itself the empty one."""
_descriptors = {}
_FIRST_DESCRIPTOR = 1 << 20
_READS = frozenset({"r", "rt", "tr", "rb", "br"})
_WRITES = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND  # O_RDWR is O_RDONLY and O_WRONLY here
_CHANGES = ("chmod", "link", "mkdir", "remove", "rename", "replace", "rmdir", "symlink", "truncate", "unlink", "utime")
_home = _here = ""
_arriving = None
_host_open = io.open


def take(name: str, size: int, piece: str) -> str:
    """Takes in the next piece of a file of that size, in base64. Answers with nothing, or that there is no room."""
    global _arriving
    try:
        if _arriving is None:
            _arriving = io.BytesIO()
            if size:  # all of it at once: growing would leave gaps
                _arriving.seek(size - 1)
                _arriving.write(b"\0")
                _arriving.seek(0)
        _arriving.write(binascii.a2b_base64(piece))
        if _arriving.tell() == size:
            _add(name, _arriving.getvalue())
            _arriving = None
    except MemoryError:
        return "no room"
    return ""


def _add(name: str, content: bytes) -> None:
    _files[name] = content
    while name:
        parent, _, entry = name.rpartition("/")
        entries = _directories.setdefault(parent, [])
        if entry not in entries:
            entries.append(entry)
        name = parent


def install(directory: str) -> None:
    """Puts the files into that directory, and the module that is to be loaded with them."""
    global _home, _here
    _home = _here = directory
    builtins.open = io.open = tokenize._builtin_open = tarfile.bltn_open = _open
    for name, function in _ANSWERS.items():
        setattr(os, name, function)


def _inside(path) -> str | None:
    """Where below the directory a path leads; None for one that leads elsewhere, or is none.

    Walks it step by step, as the system does: what `normpath` strikes out has to be a directory too.
    """
    try:
        text = os.fsdecode(path)
    except TypeError:
        return None
    if "\0" in text:
        raise ValueError("embedded null byte")
    place = "/" if text.startswith("/") else _here
    for step in text.split("/"):
        if (name := _below(place)) is not None:
            _entries(name, path)
        place = posixpath.normpath(posixpath.join(place, step))
    return _below(place) if text else None


def _below(place: str) -> str | None:
    return place[len(_home) + 1 :] if f"{place}/".startswith(f"{_home}/") else None


def _found(name: str, path) -> bytes | None:
    """The content of a file; None for a directory."""
    if name in _files:
        return _files[name]
    if name in _directories:
        return None
    raise _error(errno.ENOENT, path)


def _entries(name: str, path) -> list:
    if _found(name, path) is not None:
        raise _error(errno.ENOTDIR, path)
    return _directories[name]


def _error(number: int, path=None) -> OSError:
    return OSError(number, os.strerror(number), path)


class _Opened:
    """What a descriptor stands for: a file, and where it is read on."""

    def __init__(self, name: str, content: bytes) -> None:
        self.name, self.content, self.at = name, content, 0

    def read(self, length: int) -> bytes:
        piece = self.look(length, self.at)
        self.at += len(piece)
        return piece

    def look(self, length: int, at: int) -> bytes:
        if length < 0 or at < 0:  # which a slice would count from the end
            raise _error(errno.EINVAL)
        return self.content[at : at + length]

    def seek(self, offset: int, whence: int) -> int:
        at = offset + (0, self.at, len(self.content))[whence]
        if at < 0:
            raise _error(errno.EINVAL)
        self.at = at
        return at


class _Raw(io.RawIOBase):
    """The file object of a descriptor, as `io.FileIO` is: both read on at the same place."""

    def __init__(self, descriptor: int, name, closefd) -> None:
        self._descriptor, self.name, self.mode, self.closefd = descriptor, name, "rb", closefd

    def fileno(self) -> int:
        self._checkClosed()
        return self._descriptor

    def readable(self) -> bool:
        return self.fileno() is not None

    seekable = readable

    def readinto(self, room) -> int:
        view = memoryview(room).cast("B")
        piece = _read(self.fileno(), len(view))
        view[: len(piece)] = piece
        return len(piece)

    def readall(self) -> bytes:
        return _read(self.fileno(), _fstat(self.fileno()).st_size)

    def seek(self, offset, whence=0, /) -> int:
        return _lseek(self.fileno(), offset, whence)

    def write(self, _data):
        raise io.UnsupportedOperation("File not open for writing")

    def close(self) -> None:
        if not self.closed:
            super().close()
            if self.closefd:
                _close(self._descriptor)


def _open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):  # noqa: FBT002
    name = _inside(file) if opener is None else None
    ours = name is not None or (type(file) is int and file in _descriptors)
    text = "b" not in mode if isinstance(mode, str) else None
    if ours and text is not None and any(letter in mode for letter in "wax+"):
        raise _error(errno.EROFS, file)
    senseless = mode not in _READS or not (text or encoding is errors is newline is None)
    if not ours or senseless or not (closefd or name is None):  # which says what is wrong before it looks for the file
        return _host_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    raw = _Raw(file if name is None else _os_open(file, os.O_RDONLY), file, closefd)
    if buffering == 0:
        if text:
            raise ValueError("can't have unbuffered text I/O")
        return raw
    buffered = io.BufferedReader(raw, buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE)
    if not text:
        return buffered
    wrapped = io.TextIOWrapper(buffered, encoding, errors, newline)
    wrapped.mode = mode
    return wrapped


def _number(name: str) -> int:
    return 1 + [*_directories, *_files].index(name)


def _status(name: str, path) -> os.stat_result:
    found = _found(name, path)
    mode, size = (stat.S_IFDIR | 0o555, 0) if found is None else (stat.S_IFREG | 0o444, len(found))
    times = (0, 0, 0, 0.0, 0.0, 0.0, 0, 0, 0)  # each as a whole number, in seconds and in nanoseconds
    return os.stat_result((mode, _number(name), 1, 1, 0, 0, size, *times))


def _stat(path, *, dir_fd=None, follow_symlinks=True):
    if type(path) is int and path in _descriptors:
        return _fstat(path)
    name = _inside(path) if dir_fd is None else None
    if name is not None:
        return _status(name, path)
    return _host["stat"](path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)


def _lstat(path, *, dir_fd=None):
    return _stat(path, dir_fd=dir_fd, follow_symlinks=False)


def _listdir(path=None):
    name = _inside("." if path is None else path)
    if name is None:
        return _host["listdir"](path)
    found = _entries(name, path)
    return [*map(os.fsencode, found)] if isinstance(path, bytes) else list(found)


class _Entry:
    """What `os.scandir` gives for each file and directory."""

    def __init__(self, where, entry: str, name: str) -> None:
        of_bytes = isinstance(where, bytes)
        self.name = os.fsencode(entry) if of_bytes else entry
        self.path = posixpath.join(where, self.name)
        self._name = name

    def is_dir(self, **_how) -> bool:
        return self._name in _directories

    def is_file(self, **_how) -> bool:
        return self._name in _files

    def is_symlink(self) -> bool:
        return False

    is_junction = is_symlink

    def stat(self, **_how):
        return _status(self._name, self.path)

    def inode(self) -> int:
        return _number(self._name)

    def __fspath__(self):
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"


class _Scan:
    """An iterator over entries that can be closed."""

    def __init__(self, entries) -> None:
        self._entries = entries

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._entries)

    def close(self) -> None:
        self._entries = iter(())

    def __enter__(self):
        return self

    def __exit__(self, *_error) -> None:
        self.close()


def _scandir(path="."):
    path = "." if path is None else path
    name = _inside(path)
    if name is None:
        return _host["scandir"](path)
    where = os.fspath(path)
    return _Scan(_Entry(where, entry, f"{name}/{entry}" if name else entry) for entry in _entries(name, path))


def _access(path, mode, *, dir_fd=None, effective_ids=False, follow_symlinks=True):
    try:
        name = _inside(path) if dir_fd is None else None
        is_file = name is not None and _found(name, path) is not None
    except OSError:
        return False
    if name is None:
        return _host["access"](path, mode, dir_fd=dir_fd, effective_ids=effective_ids, follow_symlinks=follow_symlinks)
    return not (mode & os.W_OK or (mode & os.X_OK and is_file))


def _os_open(path, flags, mode=0o777, *, dir_fd=None):
    name = _inside(path) if dir_fd is None else None
    if name is None:
        return _host["open"](path, flags, mode, dir_fd=dir_fd)
    if flags & _WRITES:
        raise _error(errno.EROFS, path)
    content = _found(name, path)
    if content is None or flags & os.O_DIRECTORY:
        raise _error(errno.EISDIR if content is None else errno.ENOTDIR, path)
    descriptor = max(_descriptors, default=_FIRST_DESCRIPTOR) + 1
    _descriptors[descriptor] = _Opened(name, content)
    return descriptor


def _read(fd, length, /):
    return _descriptors[fd].read(length) if fd in _descriptors else _host["read"](fd, length)


def _pread(fd, length, offset, /):
    return _descriptors[fd].look(length, offset) if fd in _descriptors else _host["pread"](fd, length, offset)


def _close(fd):
    return _host["close"](fd) if _descriptors.pop(fd, None) is None else None


def _lseek(fd, position, whence, /):
    return _descriptors[fd].seek(position, whence) if fd in _descriptors else _host["lseek"](fd, position, whence)


def _fstat(fd):
    if fd not in _descriptors:
        return _host["fstat"](fd)
    return _status(_descriptors[fd].name, fd)


def _getcwd() -> str:
    return _here


def _getcwdb() -> bytes:
    return os.fsencode(_here)


def _chdir(path) -> None:
    global _here
    name = _inside(path)
    if name is None:
        _host["chdir"](path)
        return
    _entries(name, path)
    _here = f"{_home}/{name}" if name else _home


def _refusing(change):
    """What does the same as that function of `os`, but to nothing in the directory."""

    def refuse(path, *others, **named):
        for place in (path, *others[:1]):
            if _inside(place) is not None:
                raise _error(errno.EROFS, place)
        return change(path, *others, **named)

    return refuse


_ANSWERS = {
    **{name: _refusing(getattr(os, name)) for name in _CHANGES if hasattr(os, name)},
    "stat": _stat,
    "lstat": _lstat,
    "listdir": _listdir,
    "scandir": _scandir,
    "access": _access,
    "open": _os_open,
    "read": _read,
    "pread": _pread,
    "close": _close,
    "lseek": _lseek,
    "fstat": _fstat,
    "getcwd": _getcwd,
    "getcwdb": _getcwdb,
    "chdir": _chdir,
}
_host = {name: getattr(os, name) for name in _ANSWERS}
