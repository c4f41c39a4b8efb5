"""Bytes of a dataset as they come: from a file or a pipe, compressed or not."""

import os
import select
import stat
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, Protocol

from evalcell.errors import DatasetError

_CHUNK_BYTES = 256 * 1024
_COMPRESSED_CHUNK_BYTES = 16 * 1024  # which unpack to many more
_IDLE_SECONDS = 0.05
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = tuple(bytes([0x50 + n]) + b"\x2a\x4d\x18" for n in range(16))
_GZIP_WINDOW_BITS = 31


class Stream(ABC):
    """Bytes that come in chunks. Nothing is locked, and reading never waits long, so a reader can always be stopped."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._unread = b""

    def read(self) -> bytes | None:
        """What is there now: None when there is nothing yet, nothing at the end."""
        if self._unread:
            taken, self._unread = self._unread, b""
            return taken
        return self._read()

    @abstractmethod
    def _read(self) -> bytes | None: ...

    def head(self, enough: Callable[[bytes], bool]) -> Generator[None, None, bytes]:
        """Waits for as much of the beginning as is enough and gives it; it will be read again. Yields while waiting."""
        while not enough(self._unread) and (chunk := self._read()) != b"":
            if chunk is None:
                yield None
            else:
                self._unread += chunk
        return self._unread


class FileStream(Stream):
    """The bytes of a descriptor."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(name)
        info = os.fstat(descriptor)
        self.descriptor = descriptor
        self.is_file = stat.S_ISREG(info.st_mode)
        self.size = info.st_size if self.is_file else None
        self.position = 0
        self._poll = select.poll()  # `select` knows only the first thousand descriptors
        self._poll.register(descriptor, select.POLLIN)
        self.chunk_bytes = _COMPRESSED_CHUNK_BYTES

    def _read(self) -> bytes | None:
        try:
            if not self.is_file and not self._poll.poll(_IDLE_SECONDS * 1000):
                return None
            chunk = os.read(self.descriptor, self.chunk_bytes)
        except OSError as error:
            raise DatasetError(f"The dataset {self.name} cannot be read: {error.strerror}.") from None
        self.position += len(chunk)
        return chunk


class _Frame(Protocol):
    """One compressed piece of a stream: what `compression.zstd` has, and gzip below."""

    eof: bool
    needs_input: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _GzipFrame:
    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(_GZIP_WINDOW_BITS)
        self.needs_input = True
        self.eof = False
        self.unused_data = b""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        output = self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)
        self.needs_input = not self._inflate.unconsumed_tail
        self.eof = self._inflate.eof
        self.unused_data = self._inflate.unused_data
        return output


class Decompressed(Stream):
    """The bytes behind a compressed stream of one or more frames, never more than a chunk of them at a time."""

    def __init__(self, compressed: Stream, frame: Callable[[], _Frame]) -> None:
        super().__init__(compressed.name)
        self._compressed = compressed
        self._new_frame = frame
        self._frame = frame()

    def _read(self) -> bytes | None:
        while True:
            data: bytes | None = b""
            if self._frame.eof:
                data = self._next_frame()
                if not data:
                    return data
                self._frame = self._new_frame()
            elif self._frame.needs_input:
                data = self._compressed.read()
            if data is None:
                return None
            if output := self._decompress(data):
                return output
            if not data and self._frame.needs_input and not self._frame.eof:
                raise DatasetError(f"The dataset {self.name} is cut off: its compressed data does not end.")

    def _next_frame(self) -> bytes | None:
        """What comes after a frame. Zeros between gzip's are padding, as tapes and some tools leave it."""
        padded = self._new_frame is _GzipFrame
        data = self._frame.unused_data
        while not (data := data.lstrip(b"\0") if padded else data):
            more = self._compressed.read()
            if not more:
                return more
            data = more
        return data

    def _decompress(self, data: bytes) -> bytes:
        try:
            return self._frame.decompress(data, _CHUNK_BYTES)
        except Exception as error:  # noqa: BLE001 - zlib.error and ZstdError have no parent of their own
            raise DatasetError(f"The dataset {self.name} is damaged: {error}.") from None


def decompressed(stream: FileStream) -> Generator[None, None, Stream]:
    """The stream itself, or what is behind it where it begins as gzip or zstd data does. Yields while waiting."""
    head = yield from stream.head(lambda head: len(head) >= len(_ZSTD))
    if head.startswith(_GZIP):
        return Decompressed(stream, _GzipFrame)
    if head.startswith((_ZSTD, *_ZSTD_SKIPPABLE)):
        return Decompressed(stream, _zstd())
    stream.chunk_bytes = _CHUNK_BYTES
    return stream


def _zstd() -> Callable[[], Any]:
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdDecompressor
    else:
        from backports.zstd import ZstdDecompressor
    return ZstdDecompressor
