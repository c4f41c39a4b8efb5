"""The files that evaluators ship: copies of them in the cache, named by their content.

Every wall takes them from here by digest, so editing a file while a run is under way changes nothing in it. The bytes
are copied and hashed, and never looked into: a pickle is as good as any other file on this side of a wall.
"""

import hashlib
import os
from collections.abc import Iterator
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


class TooLarge(Exception):
    """The file is larger than it may be."""


class Changed(Exception):
    """The file was written to while it was being copied."""


def keep(file: BinaryIO, most_bytes: int) -> tuple[str, int]:
    """Copies a file into the store, unless it is there; gives its digest and its size.

    Raises:
        TooLarge: It has more bytes than it may have. No more than those were read.
        Changed: It did not stay the same.
    """
    digest, size = _hashed(file, most_bytes)
    kept = _place(digest)
    if not (_touched(kept) and kept.stat().st_size == size):
        with replacing(kept) as temporary:
            _copy(file, temporary, digest, size)
    return digest, size


def holding() -> AbstractContextManager[None]:
    """Keeps all assets where they are, those too that are only just copied."""
    return disk.held("assets")


def kept() -> list[Kept]:
    """Every copy there is."""
    return disk.files("asset", cache_path() / "assets", "[0-9a-f]*")


def discard(item: Kept) -> bool:
    """Removes one of them, unless somebody uses assets."""
    return disk.discard_file(cache_path() / "assets" / item.key, "assets")


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
    _touched(_place(asset.sha256))


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


def _touched(kept: Path) -> bool:
    """Notes that the copy was used, for whoever removes what was not used for long; False where there is none."""
    try:
        os.utime(kept)
    except OSError:
        return False
    return True


def _place(digest: str) -> Path:
    return private_dir(cache_dir() / "assets") / digest
