"""What containers keep on disk: layers and bases on the engine, and downloads in the cache."""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager

from evalcell_sandboxes import disk
from evalcell_sandboxes.container import bases, layers, shipping, uv
from evalcell_sandboxes.container.bases import Base
from evalcell_sandboxes.container.engine import Engine
from evalcell_sandboxes.disk import Kept
from evalcell_sandboxes.errors import SandboxError, SandboxUnavailable
from evalcell_sandboxes.program import Program


def kept(engine: Engine) -> list[Kept]:
    """All that could go: layers that were used from here, bases that nothing stands on, and downloads.

    An engine may be shared: layers that only others have used are theirs to remove.
    """
    found = uv.kept()
    with contextlib.suppress(SandboxError):  # no engine answers, so nothing is asked for its room
        ours = layers.found(engine)
        found += [Kept("layer", layer.key, layer.size_bytes, layer.used) for layer in ours if layer.used is not None]
        found += bases.left(engine, {layer.stands_on for layer in ours})
    return found


def discard(engine: Engine, item: Kept) -> bool:
    """Removes something, unless it is in use."""
    if item.kind == "download":
        return uv.discard_cache()
    if item.kind == "base":
        return bases.remove(engine, item.key)
    try:
        layers.remove(engine, item.key)
    except SandboxUnavailable:
        return False
    return True


@contextmanager
def holding(base: Base, program: Program) -> Iterator[None]:
    """Keeps the layers of a program where they are, and the base under them."""
    with disk.held(bases.held_as(base.image), *map(layers.held_as, shipping.keys_of(base, program))):
        yield
