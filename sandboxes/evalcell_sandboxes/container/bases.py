"""The image that everything in a container stands on: one from a registry, or this host's own CPython.

`EVALCELL_BASE_IMAGE` names it. Without that it is the official image of Python; where the engine cannot get that and
shares this machine, the CPython that evalcell itself runs on is packed into an image.
"""

import contextlib
import hashlib
import platform
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from evalcell_sandboxes import disk
from evalcell_sandboxes.caching import alone, cache_dir, private_dir, replacing
from evalcell_sandboxes.container.engine import Engine
from evalcell_sandboxes.disk import Kept
from evalcell_sandboxes.errors import SandboxFault, SandboxUnavailable
from evalcell_sandboxes.sandbox import Progress
from evalcell_sandboxes.site import ENVIRONMENT

if TYPE_CHECKING:
    from docker.models.images import Image

DEFAULT = "python:3.12-slim"
SETTING = ENVIRONMENT["base"]
_PACKED = "evalcell-base"
_DIGEST = "evalcell.digest"
LAYER = "evalcell.layer"
"""The label of what stands on a base, and has its other labels too."""
BELOW = "evalcell.base.image"
"""The label that says which image a layer stands on."""
_PROBE_BYTES = 256 * 1024**2
_PROBE_SECONDS = 60
_KILLED = 137
"""How a container ends that was killed, as for what memory it takes."""
_PROBE = """
import ctypes, json, os, platform, socket
try: libc = os.confstr("CS_GNU_LIBC_VERSION")
except (OSError, ValueError): libc = "musl 1.2"  # which does not say; every image of the last years has that or newer
with open("/proc/self/status") as file: status = dict(line.rstrip().split(":\\t", 1) for line in file if ":\\t" in line)
def tells():
    seccomp, get_action_avail, notify = 317, 2, ctypes.c_uint32(0x7FC00000)
    return not ctypes.CDLL(None).syscall(seccomp, get_action_avail, 0, ctypes.byref(notify))
with open("/proc/self/mounts") as file: mounts = [line.split()[1] for line in file]
def writable(place):
    path = place.rstrip("/") + "/probe"
    try: os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError: return False
    os.unlink(path)
    return True
def filtered():  # by our list: what engines put around containers by themselves allows this
    try: os.close(os.memfd_create("probe"))
    except PermissionError: return True
    return False
def exposed():  # whether another process of the same user can reach what PID 1 has open, though that is shut
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    if child := os.fork(): return os.waitpid(child, 0)[1] == 0
    try: os.listdir("/proc/1/fd")
    except PermissionError: os._exit(1)
    os._exit(0)
print(json.dumps({
    "image": {"python": platform.python_version(), "machine": platform.machine(), "libc": libc},
    "filtered": filtered(), "powerless": not int(status.get("CapEff", "1"), 16),
    "writable": list(filter(writable, mounts)), "exposed": exposed(),
    "tells": platform.machine() == "x86_64" and tells(), "kernel": platform.release(),
    "interfaces": [name for _, name in socket.if_nameindex()],
}), flush=True)
try:  # and now it has to be ended, for what it takes up
    taken = bytearray(MEMORY)
    for place in range(0, MEMORY, 4096): taken[place] = 1
finally: print("unlimited", flush=True)
""".replace("MEMORY", str(2 * _PROBE_BYTES))
"""What is inside, and what the kernel does: whether it filters calls, and whether it can tell PID 1 of some."""
_LOOPBACK = "lo"
_PYTHON = "python3"
_SCRATCH = "/tmp"  # noqa: S108 - the container's own


class Base(msgspec.Struct, frozen=True):
    """An image with a CPython in it, on an engine; `digest` names what is inside, wherever it came from.

    `keeps` says that the kernel there lets PID 1 keep rows in the same memory, `own_kernel` that the runtime gives
    every container a kernel of its own, `exposed` that PID 1 is out of reach only with a user of its own. `ground`
    names what all this was found out on.
    """

    name: str
    image: str
    digest: str
    python: str
    machine: str
    libc: str
    ground: str
    keeps: bool
    own_kernel: bool
    exposed: bool
    packed: bool = False

    @property
    def command(self) -> str:
        """What its interpreter is called."""
        return _PYTHON


class _Inside(msgspec.Struct):
    """What an image says of itself."""

    python: Annotated[str, msgspec.Meta(pattern=r"^[0-9]+\.[0-9]+[0-9a-z.+]*$")]
    machine: str
    libc: str


class _Probed(msgspec.Struct):
    """What an image says of itself and of the kernel that it runs on."""

    image: _Inside
    filtered: bool
    writable: list[str]
    powerless: bool
    tells: bool
    exposed: bool
    kernel: str
    interfaces: list[str]
    limited: bool = False


def current(engine: Engine) -> Base:
    """The base that was found last on that engine.

    Raises:
        SandboxUnavailable: None was.
    """
    try:
        return msgspec.json.decode(_remembered(engine).read_bytes(), type=Base)
    except (OSError, msgspec.DecodeError):
        raise SandboxUnavailable("container", "its base image was not prepared. Run the command again.") from None


def find(engine: Engine, progress: Progress) -> Base:
    """The base image: the one that is there, or pulled, or packed. Asks it what it is, if it is not known yet.

    Raises:
        SandboxUnavailable: There is none to be had.
    """
    name = engine.base or DEFAULT
    image = _local(engine, name) or (_local(engine, packed_name()) if name == DEFAULT else None)
    if image is None:
        image = _fetched(engine, name, progress)
    with contextlib.suppress(SandboxUnavailable):
        known = current(engine)
        if known.image == image.id and known.ground == _ground(engine):
            return _noted(known)
    base = _probed(engine, image, name)
    with replacing(_remembered(engine)) as file:
        file.write_bytes(msgspec.json.encode(base))
    return _noted(base)


def _noted(base: Base) -> Base:
    """Notes that a base was used, if it is one that we have packed and so may remove."""
    if base.packed:
        (_notes() / _file_name(base.image)).touch()
    return base


def _ground(engine: Engine) -> str:
    """Names what containers stand on that is no image: when it changes, what is known of them may be wrong."""
    runtimes = engine.info.get("Runtimes") or {}
    runtime = runtimes.get(engine.runtime or engine.info.get("DefaultRuntime"))
    asked = hashlib.sha256(_PROBE.encode()).hexdigest()[:8]
    return f"{engine.version} {engine.kernel} {runtime} {asked}"


def _remembered(engine: Engine) -> Path:
    """Where it is written down: for each engine, runtime and setting, and each Python that would be packed."""
    about = "\n".join((engine.address, engine.runtime, engine.base or packed_name()))
    key = hashlib.sha256(about.encode()).hexdigest()[:16]
    return private_dir(cache_dir() / "container") / f"base-{key}.json"


def _local(engine: Engine, name: str) -> "Image | None":
    from docker.errors import ImageNotFound

    with engine.translated(f"image {name!r} was looked for"):
        try:
            return engine.client.images.get(name)
        except ImageNotFound:
            return None


def _fetched(engine: Engine, name: str, progress: Progress) -> "Image":
    progress(f"Pulling the base image {name}")
    why = _pull(engine, name)
    image = _local(engine, name)
    if image is not None:
        return image
    if name != DEFAULT:
        raise SandboxUnavailable(
            "container", f"the base image {name!r} is not on the engine and cannot be pulled: {why}. Check {SETTING}."
        )
    if not _can_pack(engine):
        raise SandboxUnavailable(
            "container",
            f"the base image {name!r} cannot be pulled: {why}. Load one into the engine, and name it in {SETTING}.",
        )
    progress(f"Packing this machine's own CPython {platform.python_version()} as the base: no registry can be reached")
    return _pack(engine, progress)


def _pull(engine: Engine, name: str) -> str:
    """Pulls an image, and says why not if it cannot be."""
    from docker.errors import APIError, DockerException
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(name)
    try:
        engine.api.pull(repository, tag=tag or "latest")
    except APIError as error:
        return str(error.explanation or error)[:300]
    except (DockerException, OSError) as error:
        return str(error)[:300]
    return ""


def _can_pack(engine: Engine) -> bool:
    """Whether what runs here runs there too."""
    return sys.platform == "linux" and engine.found.is_here and engine.machine == platform.machine()


def kept(engine: Engine) -> list[Kept]:
    """The bases that were packed and used from here."""
    with engine.translated("bases were listed"):
        images = engine.api.images(filters={"label": _DIGEST})
    there = {_file_name(image["Id"]): image for image in images}  # and what was built on them, which nobody has noted
    used = disk.files("base", _notes(), "base-*")
    return [
        Kept("base", there[note.key]["Id"], there[note.key]["Size"], note.used) for note in used if note.key in there
    ]


def remove(engine: Engine, image: str) -> bool:
    """Removes a base, unless somebody uses it, or another image stands on it."""
    from docker.errors import APIError

    with engine.translated("a base was looked for"):
        digest = engine.client.images.get(image).labels[_DIGEST]
    with disk.alone_with(held_as(digest)) as free:
        if not free or _is_stood_on(engine, image):
            return False
        try:
            engine.api.remove_image(image)
        except APIError:
            return False
    return True


def _is_stood_on(engine: Engine, image: str) -> bool:
    """Whether a layer stands on an image. Podman would remove that all the same, and free nothing."""
    with engine.translated("layers were listed"):
        layers = engine.api.images(all=True, filters={"label": LAYER})
    return any((layer["Labels"] or {}).get(BELOW) == image for layer in layers)


def held_as(digest: str) -> str:
    """What whoever uses a base holds: also one that is made anew meanwhile, which is another image then."""
    return _file_name(digest)


def _file_name(name: str) -> str:
    return f"base-{name.replace(':', '-')}"


def _notes() -> Path:
    return private_dir(private_dir(cache_dir() / "container") / "bases")


def packed_name() -> str:
    """What the image is called that holds this host's own Python."""
    from evalcell_sandboxes.container import packing

    return f"{_PACKED}:{packing.key()[:32]}"


def _pack(engine: Engine, progress: Progress) -> "Image":
    from evalcell_sandboxes.container import packing

    name = packed_name()
    with alone(private_dir(cache_dir() / "container") / "packing.lock", progress, "another process that packs it"):
        if (there := _local(engine, name)) is not None:  # somebody else has just done it
            return there
        with tempfile.TemporaryDirectory(prefix="evalcell-base-") as scratch:
            archive = Path(scratch) / "base.tar"
            packed = packing.pack(archive, progress)
            progress("Importing the base image into the engine")
            with engine.translated("the base image was imported"):
                engine.api.import_image_from_file(
                    str(archive), repository=name, changes=[f"LABEL {_DIGEST}={packed.digest}"]
                )
    image = _local(engine, name)
    if image is None:
        raise SandboxFault("The engine has lost the base image that was just imported.")
    return image


def _probed(engine: Engine, image: "Image", name: str) -> Base:
    """Asks the Python in an image what it is, and what it stands on.

    Only our own words are run, and in a container as tight as any.
    """
    from evalcell_sandboxes.container.box import Shape, create  # which knows of bases

    if volumes := (image.attrs.get("Config") or {}).get("Volumes"):
        raise SandboxUnavailable(
            "container",
            f"the base image {name!r} declares the volume {next(iter(volumes))!r}, which rows could write to without "
            f"limit and leave things in. Name an image without volumes in {SETTING}.",
        )
    with engine.translated(f"the base image {name!r} was looked at"):
        shape = Shape(memory_bytes=_PROBE_BYTES, logged=True, own_kernel=True)
        container = create(engine, str(image.id), [_PYTHON, "-I", "-S", "-c", _PROBE], shape)
        try:
            code, said, complaint = _told(engine, container)
        finally:
            engine.discard(container)
    packed = (image.labels or {}).get(_DIGEST)
    try:
        told, _, more = said.partition(b"\n")
        found = msgspec.json.decode(told, type=_Probed)
        found.limited = code == _KILLED and not more
    except msgspec.DecodeError:
        raise SandboxUnavailable(
            "container",
            f"the base image {name!r} has no usable {_PYTHON}: {complaint[:300]}. "
            f"Name an image with Python in it in {SETTING}.",
        ) from None
    _require_wall(engine, found)
    return Base(
        name=f"this machine's own CPython {found.image.python}" if packed else name,
        image=str(image.id),
        digest=packed or str(image.id),
        packed=bool(packed),
        ground=_ground(engine),
        keeps=found.tells,
        own_kernel=found.kernel != engine.kernel,
        exposed=found.exposed,
        **msgspec.structs.asdict(found.image),
    )


def _told(engine: Engine, container: str) -> tuple[int | None, bytes, str]:
    """How a container ends, what it prints, and what there is to say if that is not what it should be."""
    from docker.errors import APIError

    api = engine.api
    try:
        api.start(container)
    except APIError as error:
        if _PYTHON not in (why := str(error.explanation)):
            raise
        return None, b"", why
    code = api.wait(container, timeout=_PROBE_SECONDS)["StatusCode"]
    complaint = f"exit code {code}, {api.logs(container).decode(errors='replace')[:250]!r}"
    return code, api.logs(container, stderr=False), complaint


def _require_wall(engine: Engine, found: _Probed) -> None:
    """An engine takes settings that its runtime then does nothing about, so it is asked from inside."""
    runtime = f" with the runtime {engine.runtime!r}" if engine.runtime else ""
    if not engine.kernel:  # by which those are told apart that have one of their own
        raise SandboxUnavailable(
            "container", f"the engine at {engine.address} does not say which kernel it runs on. Use another."
        )
    if not found.filtered:
        raise SandboxUnavailable(
            "container",
            f"the engine at {engine.address}{runtime} does not hold containers to our list of allowed system calls, "
            "and the wall would have holes without. For gVisor, add --oci-seccomp to its runtimeArgs.",
        )
    if not found.limited:
        raise SandboxUnavailable(
            "container",
            f"the engine at {engine.address}{runtime} does not hold containers to their limit of memory. Give it "
            "control groups that can; for gVisor, take --ignore-cgroups out of its runtimeArgs.",
        )
    if set(found.interfaces) - {_LOOPBACK}:
        raise SandboxUnavailable(
            "container",
            f"the engine at {engine.address}{runtime} gives containers a network that should have none. Use another; "
            "for gVisor, take --network=host out of its runtimeArgs.",
        )
    if found.writable != [_SCRATCH]:
        raise SandboxUnavailable(
            "container",
            f"on the engine at {engine.address}{runtime} rows could leave things in {', '.join(found.writable)}, where "
            f"only {_SCRATCH} is looked after. Use another.",
        )
    if found.exposed and found.kernel == engine.kernel:  # what helps against that would be power over this kernel
        raise SandboxUnavailable(
            "container",
            f"on the engine at {engine.address}{runtime} rows could speak for their supervisor. Use another.",
        )
    if not found.powerless:
        raise SandboxUnavailable(
            "container", f"the engine at {engine.address}{runtime} leaves containers with capabilities. Use another."
        )
