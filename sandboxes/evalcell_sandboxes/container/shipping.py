"""Images with the assets of an evaluator: its base or its packages, and on that one layer with the files.

The files belong to root in a root that cannot be written to, so no row can change, remove or replace them. As with
packages, the layer is named by what is in it, and kept until it is removed.
"""

import hashlib
import json
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO

from evalcell_sandboxes import assets
from evalcell_sandboxes.container import box, layers, presence
from evalcell_sandboxes.container.bases import BELOW, LAYER, Base
from evalcell_sandboxes.container.engine import Engine
from evalcell_sandboxes.program import Asset, Program
from evalcell_sandboxes.sandbox import Progress

_FORMAT = "assets 1"
_BUILD_BYTES = 64 * 1024**2
_ROOT = 0


def image_of(base: Base, program: Program) -> str:
    """The image that a program runs in."""
    below = layers.image_of(base, program.lock)
    return f"{presence.REPOSITORY}:{_key_of(base, program)}" if program.assets else below


def keys_of(base: Base, program: Program) -> list[str]:
    """The layers that a program stands on, by their keys."""
    packages = [layers.key_of(base, program.lock)] if program.lock else []
    return packages + ([_key_of(base, program)] if program.assets else [])


def ensure(engine: Engine, base: Base, program: Program, progress: Progress) -> None:
    """Builds what of the image is not there, and notes that the evaluator uses it. Two at once build once.

    Raises:
        DependencyProblem: A package cannot be had.
        SandboxUnavailable, SandboxFault: The engine, or the installer, could not do it.
    """
    layers.ensure(engine, base, program.lock, program.filename, progress)
    if program.assets:
        build = partial(_build, engine, base=base, program=program, progress=progress)
        layers.keep(engine, _key_of(base, program), program.filename, progress, build)


def _key_of(base: Base, program: Program) -> str:
    """Names what the layer holds and what is under it."""
    parts = [_FORMAT, layers.key_of(base, program.lock)]
    for asset in program.assets:
        parts += [asset.name, asset.sha256]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _build(engine: Engine, key: str, base: Base, program: Program, progress: Progress) -> None:
    progress("Copying assets into a layer")
    labels = _labels(engine, key, base, program)
    with (
        tempfile.TemporaryFile(prefix="evalcell-assets-") as file,
        _container(engine, base, labels) as container,
    ):
        _pack(program.assets, file)
        file.seek(0)
        with engine.translated("assets were copied into a layer"):
            engine.api.put_archive(container, "/", file)
        layers.commit(engine, container, key, labels)


@contextmanager
def _container(engine: Engine, base: Base, labels: dict[str, str]) -> Iterator[str]:
    """A container that is never started: files are put into it, and it is committed."""
    shape = box.Shape(memory_bytes=_BUILD_BYTES, user=_ROOT, builds=True, labels=labels)
    with engine.translated("a layer was begun"):
        container = box.create(engine, labels[BELOW], [base.command], shape)
    try:
        yield container
    finally:
        engine.discard(container)


def _pack(shipped: tuple[Asset, ...], file: IO[bytes]) -> None:
    """Writes the archive of the directory: nothing in it but directories and regular files, and nobody's name."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for directory in _directories(shipped):
            archive.addfile(_member(directory, tarfile.DIRTYPE, 0o755, 0))
        for asset in shipped:
            member = _member(f"{assets.DIRECTORY}/{asset.name}", tarfile.REGTYPE, 0o444, assets.size_of(asset))
            with tempfile.SpooledTemporaryFile(assets.PIECE_BYTES) as content:
                for piece in assets.pieces(asset):
                    content.write(piece)
                content.seek(0)
                archive.addfile(member, content)


def _directories(shipped: tuple[Asset, ...]) -> list[str]:
    """Every directory that is to be made, each after the one it is in."""
    found = {assets.DIRECTORY}
    for asset in shipped:
        steps = asset.name.split("/")[:-1]
        found.update("/".join((assets.DIRECTORY, *steps[:count])) for count in range(1, len(steps) + 1))
    return sorted(found)


def _member(path: str, kind: bytes, mode: int, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path.lstrip("/"))
    member.type, member.mode, member.size = kind, mode, size
    return member


def _labels(engine: Engine, key: str, base: Base, program: Program) -> dict[str, str]:
    with engine.translated("a layer was looked for"):
        below = engine.client.images.get(layers.image_of(base, program.lock))
    return {
        LAYER: key,
        "evalcell.base": base.digest,
        "evalcell.base.name": base.name,
        BELOW: str(below.id),
        "evalcell.python": base.python,
        "evalcell.packages": "",
        "evalcell.assets": json.dumps([asset.name for asset in program.assets]),
        "evalcell.built": str(int(time.time())),
    }
