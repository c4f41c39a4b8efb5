"""The files that evaluators ship: copies of them in the cache, named by their content.

Every wall takes them from here by digest, so editing a file while a run is under way changes nothing in it. The bytes
are copied and hashed, and never looked into: a pickle is as good as any other file on this side of a wall.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from evalcell_sandboxes import disk
from evalcell_sandboxes.caching import cache_dir, cache_path, private_dir, replacing
from evalcell_sandboxes.disk import Kept
from evalcell_sandboxes.errors import SandboxFault
from evalcell_sandboxes.program import Asset

DIRECTORY = "/evaluator"
"""Where the code behind a wall finds itself and, beside it, its assets."""
PIECE_BYTES = 1024**2
_COPYING = "assets"


class TooLarge(Exception):
    """The file is larger than it may be."""


class Changed(Exception):
    """The file was written to while it was being copied."""


def keep(file: BinaryIO, most_bytes: int) -> tuple[str, int]:
    """Copies a file into the store, unless it is there; gives its digest and its size.

    Raises:
        TooLarge: It has more bytes than it may have. No more than those were read.
        Changed: It did not stay the same.
        SandboxFault: There is no room for it, or the cache cannot be written to.
    """
    digest, size = _hashed(file, most_bytes)
    try:
        kept = _place(digest)
        if _size_of(kept) != size:
            with replacing(kept) as temporary:
                _copy(file, temporary, digest, size)
        _touch(kept)
    except OSError as error:
        raise SandboxFault(
            f"Assets cannot be copied into the cache {str(cache_path())!r}: {error.strerror}. Make room there, or set "
            "EVALCELL_CACHE_DIR to a directory of your own."
        ) from error
    return digest, size


def copying() -> AbstractContextManager[None]:
    """Keeps all assets where they are while some are being copied."""
    return disk.held(_COPYING)


def holding(shipped: Sequence[Asset]) -> AbstractContextManager[None]:
    """Keeps these where they are."""
    return disk.held(*sorted({_held_as(asset.sha256) for asset in shipped}))


def kept() -> list[Kept]:
    """Every copy there is."""
    return disk.files("asset", cache_path() / "assets", "[0-9a-f]*")


def discard(item: Kept) -> bool:
    """Removes one of them, unless somebody uses it, or is just copying some."""
    with disk.alone_with(_COPYING) as free:
        return free and disk.discard_file(cache_path() / "assets" / item.key, _held_as(item.key))


def _held_as(digest: str) -> str:
    """What whoever uses an asset holds: it, and those whose digests begin alike. There may be a thousand of them, and
    each that is held is an open file.
    """
    return f"assets-{digest[0]}"


def size_of(asset: Asset) -> int:
    """How many bytes it has.

    Raises:
        SandboxFault: It is not in the store.
    """
    with _opened(asset) as file:
        return os.fstat(file.fileno()).st_size


def pieces(asset: Asset) -> Iterator[bytes]:
    """The content, piece by piece; what was read is right once the last one was taken.

    Raises:
        SandboxFault: It is not in the store, or not what it was. Then it is there no longer.
    """
    seen = hashlib.sha256()
    with _opened(asset) as file:
        while piece := file.read(PIECE_BYTES):
            seen.update(piece)
            yield piece
    if seen.hexdigest() != asset.sha256:
        _place(asset.sha256).unlink(missing_ok=True)
        raise SandboxFault(
            f"The copy of the asset {asset.name!r} in the cache was changed by somebody, and is removed. Run it again."
        )
    _touch(_place(asset.sha256))


def _hashed(file: BinaryIO, most_bytes: int) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    while piece := file.read(PIECE_BYTES):
        size += len(piece)
        if size > most_bytes:
            raise TooLarge
        digest.update(piece)
    return digest.hexdigest(), size


def _copy(file: BinaryIO, target: Path, digest: str, size: int) -> None:
    """Once more from the start. Somebody may write to it meanwhile, so it is hashed on its way into the store."""
    seen, left = hashlib.sha256(), size + 1
    file.seek(0)
    with target.open("wb") as out:
        while piece := file.read(min(PIECE_BYTES, left)):
            left -= len(piece)
            seen.update(piece)
            out.write(piece)
    if seen.hexdigest() != digest:
        raise Changed


def _opened(asset: Asset) -> BinaryIO:
    try:
        return _place(asset.sha256).open("rb")
    except OSError as error:
        raise SandboxFault(
            f"The copy of the asset {asset.name!r} in the cache cannot be read: {error.strerror}. Run it again."
        ) from error


def _size_of(kept: Path) -> int | None:
    """How large a copy is; None where there is none."""
    try:
        return kept.stat().st_size
    except FileNotFoundError:
        return None


def _touch(kept: Path) -> None:
    """Notes that the copy was used, for whoever removes what was not used for long."""
    with contextlib.suppress(OSError):  # whoever cannot write there cannot remove it either
        os.utime(kept)


def _place(digest: str) -> Path:
    return private_dir(cache_dir() / "assets") / digest
