"""The layers that there are on an engine, who has used them and when, and how they go.

An engine may be shared with other machines, and with people who build images of their own on ours.
"""

import contextlib
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec

from evalcell_sandboxes import disk
from evalcell_sandboxes.caching import cache_dir, private_dir, replacing
from evalcell_sandboxes.container.bases import BELOW, LAYER
from evalcell_sandboxes.container.engine import Engine
from evalcell_sandboxes.errors import SandboxError, SandboxUnavailable

REPOSITORY = "evalcell-layer"
_DAY_SECONDS = 86_400.0
_NAMELESS = "<none>:<none>"
_PREFIX = "sha256:"


class Layer(msgspec.Struct, frozen=True):
    """A layer that is on the engine, and the image that it stands on: a base, or another layer's.

    Its size is without what is below. Times are in seconds since 1970, `used` is None where nobody has noted any.
    """

    key: str
    packages: tuple[str, ...]
    assets: tuple[str, ...]
    python: str
    base: str
    size_bytes: int
    built: float
    used: float | None
    evaluators: tuple[str, ...]
    image: str = ""
    stands_on: str = ""


class _Uses(msgspec.Struct):
    """Who has used a layer, and when."""

    used: float
    evaluators: dict[str, float] = {}


class _Labels(msgspec.Struct):
    """What the image of a layer says of itself."""

    key: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{32}\Z")] = msgspec.field(name=LAYER)
    below: str = msgspec.field(name=BELOW, default="")
    base: str = msgspec.field(name="evalcell.base.name", default="")
    python: str = msgspec.field(name="evalcell.python", default="")
    packages: str = msgspec.field(name="evalcell.packages", default="")
    assets: str = msgspec.field(name="evalcell.assets", default="[]")
    built: Annotated[float, msgspec.Meta(ge=0)] | None = msgspec.field(name="evalcell.built", default=None)


class _Image(msgspec.Struct):
    """An image that is a layer of ours."""

    id: str
    size_bytes: int
    created: float
    is_named: bool
    labels: _Labels
    assets: tuple[str, ...]


def _images(engine: Engine) -> dict[str, list[_Image]]:
    """The images of every layer by its key, the one that is used first.

    There are more than one where machines that share the engine have built the same layer at the same time.
    """
    with engine.translated("layers were listed"):
        listed = engine.api.images(filters={"label": LAYER})
    found: dict[str, list[_Image]] = {}
    for image in filter(None, map(_image, listed)):
        found.setdefault(image.labels.key, []).append(image)
    return {key: sorted(images, key=lambda image: not image.is_named) for key, images in found.items()}


def _image(image: dict[str, Any]) -> _Image | None:
    """An image, if it is a layer of ours: by its name, or because it stands directly on what it says it does. Labels
    pass on to whatever people build on an image.
    """
    try:
        labels = msgspec.convert(image["Labels"] or {}, _Labels, strict=False)
        assets = msgspec.json.decode(labels.assets, type=tuple[str, ...])
    except msgspec.DecodeError:
        return None
    names = [tag.rpartition("/")[2] for tag in image.get("RepoTags") or () if tag != _NAMELESS]
    is_named = f"{REPOSITORY}:{labels.key}" in names
    parent = str(image.get("ParentId", "")).removeprefix(_PREFIX)  # which Podman leaves out
    is_spare = not names and bool(parent) and parent == labels.below.removeprefix(_PREFIX)
    if not (is_named or is_spare):
        return None
    return _Image(image["Id"], image["Size"], image["Created"], is_named, labels, assets)


def found(engine: Engine) -> list[Layer]:
    """Every layer on the engine, the one used last first."""
    with engine.translated("layers were listed"):
        sizes = {image["Id"]: image["Size"] for image in engine.api.images(all=True)}
    layers = [_layer(images, sizes) for images in _images(engine).values()]
    return sorted(layers, key=lambda layer: layer.used or layer.built, reverse=True)


def _layer(images: list[_Image], sizes: dict[str, int]) -> Layer:
    image, labels = images[0], images[0].labels
    uses = _uses(labels.key)
    return Layer(
        key=labels.key,
        packages=tuple(labels.packages.split()),
        assets=image.assets,
        python=labels.python,
        base=labels.base,
        size_bytes=sum(image.size_bytes - sizes.get(image.labels.below, 0) for image in images),
        built=image.created if labels.built is None else labels.built,
        used=uses.used if uses else None,
        evaluators=tuple(sorted(uses.evaluators)) if uses else (),
        image=image.id,
        stands_on=labels.below,
    )


def remove(engine: Engine, key: str) -> None:
    """Removes a layer.

    Raises:
        SandboxUnavailable: A run is using it, here or on another machine, or something stands on it.
    """
    with disk.alone_with(held_as(key)) as free, engine.translated("a layer was removed"):
        if not free:
            raise SandboxUnavailable("container", f"layer {key[:12]} is in use. Try again when its runs are done.")
        images = _images(engine).get(key, [])
        _require_top(engine, key, {image.id for image in images})
        for image in reversed(images):
            _remove_image(engine, key, image.id)
        (notes() / f"{key}.json").unlink(missing_ok=True)


def remove_spares(engine: Engine, key: str) -> None:
    """Removes what machines that share the engine have built of a layer at the same time, unless it is in use. One of
    them may just do the same.
    """
    with contextlib.suppress(SandboxError):
        for spare in _images(engine).get(key, [])[1:]:
            with contextlib.suppress(SandboxError), engine.translated("a layer that was built twice was removed"):
                _remove_image(engine, key, spare.id)


def _require_top(engine: Engine, key: str, images: set[str]) -> None:
    """Engines differ in what they do with an image that another stands on; none of them frees its space."""
    standing = [above for above, found in _images(engine).items() if any(each.labels.below in images for each in found)]
    if standing:
        above = " ".join(each[:12] for each in standing)
        raise SandboxUnavailable(
            "container", f"layer {key[:12]} is what others stand on. Remove those first: evalcell layers rm {above}"
        )


def _remove_image(engine: Engine, key: str, image: str) -> None:
    """Not by its name: Docker would take that away, and keep the image if somebody else has built on it."""
    from docker.errors import APIError

    try:
        engine.api.remove_image(image)
    except APIError as error:
        if error.status_code != 409:  # noqa: PLR2004 - a conflict
            raise
        raise SandboxUnavailable(
            "container", f"layer {key[:12]} is in use. Try again when it is not. The engine says: {error.explanation}"
        ) from error


def held_as(key: str) -> str:
    """What whoever uses a layer holds."""
    return f"layer-{key}"


def unused(engine: Engine, days: float) -> list[Layer]:
    """The layers that nobody has used for so many days."""
    limit = time.time() - days * _DAY_SECONDS
    return [layer for layer in found(engine) if (layer.used or layer.built) <= limit]


def notes() -> Path:
    """Where all that is written down."""
    return private_dir(private_dir(cache_dir() / "container") / "layers")


def _uses(key: str) -> _Uses | None:
    try:
        return msgspec.json.decode((notes() / f"{key}.json").read_bytes(), type=_Uses)
    except (OSError, msgspec.DecodeError):
        return None


def note_use(key: str, evaluator: str) -> None:
    """Notes that an evaluator uses a layer now."""
    now = time.time()
    uses = _uses(key) or _Uses(now)
    uses.used = now
    uses.evaluators[evaluator] = now
    with replacing(notes() / f"{key}.json") as file:
        file.write_bytes(msgspec.json.encode(uses))
