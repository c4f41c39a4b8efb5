"""What containers keep on disk: layers and bases on the engine, and downloads in the cache."""

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from evalcell_sandboxes import disk
from evalcell_sandboxes.container import bases, presence, shipping, uv
from evalcell_sandboxes.container.bases import Base
from evalcell_sandboxes.container.engine import Engine
from evalcell_sandboxes.container.presence import Layer
from evalcell_sandboxes.disk import Kept
from evalcell_sandboxes.errors import SandboxError, SandboxUnavailable
from evalcell_sandboxes.program import Program


def kept(engine: Engine) -> list[Kept]:
    """Layers that were used from here, the bases that were packed here, and downloads.

    An engine may be shared: layers that only others have used are theirs to remove.
    """
    found = uv.kept()
    with contextlib.suppress(SandboxError):  # no engine answers, so nothing is asked for its room
        found += _from_the_top(presence.found(engine), bases.kept(engine))
    return found


def _from_the_top(found: list[Layer], grounds: list[Kept]) -> list[Kept]:
    """Layers and then bases, each after what stands on it, and used no earlier: only in that order can they go."""
    kept, used = [], defaultdict[str, float](float)
    for layer in sorted(found, key=lambda layer: not layer.assets):  # nothing stands on those
        if layer.used is not None:
            last = max(layer.used, used[layer.image])
            used[layer.stands_on] = max(last, used[layer.stands_on])
            kept.append(Kept("layer", layer.key, layer.size_bytes, last))
    return kept + [replace(base, used=max(base.used, used[base.key])) for base in grounds]


def discard(engine: Engine, item: Kept) -> bool:
    """Removes something, unless it is in use, or something stands on it."""
    if item.kind == "download":
        return uv.discard_cache()
    if item.kind == "base":
        return bases.remove(engine, item.key)
    try:
        presence.remove(engine, item.key)
    except SandboxUnavailable:
        return False
    return True


@contextmanager
def holding(base: Base, program: Program) -> Iterator[None]:
    """Keeps the layers of a program where they are, and the base under them."""
    with disk.held(bases.held_as(base.digest), *map(presence.held_as, shipping.keys_of(base, program))):
        yield
