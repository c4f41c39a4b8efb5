"""The image that everything in a container stands on: one from a registry, or this host's own CPython.

`EVALCELL_BASE_IMAGE` names it. Without that it is the official image of Python; where the engine cannot get that and
shares this machine, the CPython that evalcell itself runs on is packed into an image.
"""

import contextlib
import hashlib
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from evalcell_sandboxes.caching import alone, cache_dir, private_dir, replacing
from evalcell_sandboxes.container.engine import address, connected
from evalcell_sandboxes.container.failure import translated
from evalcell_sandboxes.errors import SandboxFault, SandboxUnavailable
from evalcell_sandboxes.sandbox import Progress

if TYPE_CHECKING:
    from docker.models.images import Image

DEFAULT = "python:3.12-slim"
SETTING = "EVALCELL_BASE_IMAGE"
_PACKED = "evalcell-base"
_DIGEST = "evalcell.digest"
_PROBE_BYTES = 256 * 1024**2
_PROBE_SECONDS = 60
_PROBE = """
import json, os, platform, sys
try: libc = os.confstr("CS_GNU_LIBC_VERSION")
except (OSError, ValueError): libc = "musl 1.2"  # which does not say; every image of the last years has that or newer
print(json.dumps({"python": platform.python_version(), "machine": platform.machine(), "libc": libc}))
"""
_PYTHON = "python3"


class Base(msgspec.Struct, frozen=True):
    """An image with a CPython in it; `digest` names what is inside, wherever it came from."""

    name: str
    image: str
    digest: str
    python: str
    machine: str
    libc: str
    packed: bool = False

    @property
    def command(self) -> str:
        """What its interpreter is called."""
        return _PYTHON


def current() -> Base:
    """The base that was found last.

    Raises:
        SandboxUnavailable: None was.
    """
    try:
        return msgspec.json.decode(_remembered().read_bytes(), type=Base)
    except (OSError, msgspec.DecodeError):
        raise SandboxUnavailable("container", "its base image was not prepared. Run the command again.") from None


def find(progress: Progress) -> Base:
    """The base image: the one that is there, or pulled, or packed. Asks it what it is, if it is not known yet.

    Raises:
        SandboxUnavailable: There is none to be had.
    """
    name = os.environ.get(SETTING) or DEFAULT
    image = _local(name) or (_local(_packed_name()) if name == DEFAULT else None)
    if image is None:
        image = _fetched(name, progress)
    with contextlib.suppress(SandboxUnavailable):
        known = current()
        if known.image == image.id:
            return known
    base = _probed(image, name)
    with replacing(_remembered()) as file:
        file.write_bytes(msgspec.json.encode(base))
    return base


def _remembered() -> Path:
    """Where it is written down: for each engine, each setting, and each Python that would be packed."""
    key = hashlib.sha256(f"{address()} {os.environ.get(SETTING) or _packed_name()}".encode()).hexdigest()[:16]
    return private_dir(cache_dir() / "container") / f"base-{key}.json"


def _local(name: str) -> "Image | None":
    from docker.errors import ImageNotFound

    with translated(f"image {name!r} was looked for"):
        try:
            return connected().images.get(name)
        except ImageNotFound:
            return None


def _fetched(name: str, progress: Progress) -> "Image":
    progress(f"Pulling the base image {name}")
    why = _pull(name)
    image = _local(name)
    if image is not None:
        return image
    if name != DEFAULT:
        raise SandboxUnavailable(
            "container", f"the base image {name!r} is not on the engine and cannot be pulled: {why}. Check {SETTING}."
        )
    if not _can_pack():
        raise SandboxUnavailable(
            "container",
            f"the base image {name!r} cannot be pulled: {why}. Load one into the engine, and name it in {SETTING}.",
        )
    progress(f"Packing this machine's own CPython {platform.python_version()} as the base: no registry can be reached")
    return _pack(progress)


def _pull(name: str) -> str:
    """Pulls an image, and says why not if it cannot be."""
    from docker.errors import APIError, DockerException
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(name)
    try:
        connected().api.pull(repository, tag=tag or "latest")
    except APIError as error:
        return str(error.explanation or error)[:300]
    except (DockerException, OSError) as error:
        return str(error)[:300]
    return ""


def _can_pack() -> bool:
    """Whether what runs here runs there too."""
    if sys.platform != "linux" or not address().startswith("unix://"):
        return False
    with translated("its architecture was asked for"):
        found = connected().info().get("Architecture", "")
    return bool(found == platform.machine())


def _packed_name() -> str:
    from evalcell_sandboxes.container import packing

    return f"{_PACKED}:{packing.key()[:32]}"


def _pack(progress: Progress) -> "Image":
    from evalcell_sandboxes.container import packing

    name = _packed_name()
    with alone(private_dir(cache_dir() / "container") / "packing.lock", progress, "another process that packs it"):
        if (there := _local(name)) is not None:  # somebody else has just done it
            return there
        with tempfile.TemporaryDirectory(prefix="evalcell-base-") as scratch:
            archive = Path(scratch) / "base.tar"
            packed = packing.pack(archive, progress)
            repository, _, tag = name.partition(":")
            progress("Importing the base image into the engine")
            with translated("the base image was imported"):
                connected().api.import_image_from_file(
                    str(archive), repository=repository, tag=tag, changes=[f"LABEL {_DIGEST}={packed.digest}"]
                )
    image = _local(name)
    if image is None:
        raise SandboxFault("The engine has lost the base image that was just imported.")
    return image


def _probed(image: "Image", name: str) -> Base:
    """Asks the Python in an image what it is. Only our own words are run, and in a container as tight as any."""
    from evalcell_sandboxes.container.box import create

    if volumes := (image.attrs.get("Config") or {}).get("Volumes"):
        raise SandboxUnavailable(
            "container",
            f"the base image {name!r} declares the volume {next(iter(volumes))!r}, which rows could write to without "
            f"limit and leave things in. Name an image without volumes in {SETTING}.",
        )
    api = connected().api
    with translated(f"the base image {name!r} was looked at"):
        container = create(str(image.id), [_PYTHON, "-I", "-S", "-c", _PROBE], _PROBE_BYTES, logged=True)
        try:
            api.start(container)
            code = api.wait(container, timeout=_PROBE_SECONDS)["StatusCode"]
            said = api.logs(container).decode(errors="replace")
        finally:
            api.remove_container(container, force=True)
    packed = (image.labels or {}).get(_DIGEST)
    try:
        found = json.loads(said)
        return Base(
            name=f"this machine's own CPython {found['python']}" if packed else name,
            image=str(image.id),
            digest=packed or str(image.id),
            packed=bool(packed),
            **found,
        )
    except (ValueError, KeyError, TypeError):
        raise SandboxUnavailable(
            "container",
            f"the base image {name!r} has no usable {_PYTHON}: exit code {code}, {said[:300]!r}. "
            f"Name an image with Python in it in {SETTING}.",
        ) from None
