"""Images of packages: the base, and on it one layer for each lock, shared by every evaluator with that lock.

A layer is named by what is in it. Its packages are unpacked on the host by an installer that runs nothing of theirs,
put into a container of the base that has no network, compiled there, and committed. What is built is kept until it is
removed; a build that fails leaves nothing behind.
"""

import contextlib
import hashlib
import os
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from evalcell_sandboxes.caching import alone, private_dir
from evalcell_sandboxes.container import box, installing, locking, presence
from evalcell_sandboxes.container.bases import BELOW, LAYER, Base
from evalcell_sandboxes.container.engine import OWNER, Engine
from evalcell_sandboxes.container.trees import discard
from evalcell_sandboxes.errors import SandboxFault
from evalcell_sandboxes.sandbox import Progress

PACKAGES = "/opt/evalcell/packages"
"""Where the packages are in an image."""
_FORMAT = "1"
_COMPILE_SECONDS = 900
_COMPILE_BYTES = 4 * 1024**3
# Tests are seldom imported, and are a third of what there is to compile.
_COMPILE = ["-m", "compileall", "-q", "-x", "/tests?/", "--invalidation-mode", "unchecked-hash", PACKAGES]
_ROOT = 0


def key_of(base: Base, lock: str) -> str:
    """Names what a layer holds."""
    return hashlib.sha256("\0".join((_FORMAT, base.digest, base.machine, lock)).encode()).hexdigest()[:32]


def image_of(base: Base, lock: str) -> str:
    """The image that a program with that lock runs in."""
    return f"{presence.REPOSITORY}:{key_of(base, lock)}" if lock else base.image


def ensure(engine: Engine, base: Base, lock: str, evaluator: str, progress: Progress) -> None:
    """Builds the layer if it is not there, and notes that the evaluator uses it. Two at once build once.

    Raises:
        DependencyProblem: A package cannot be had.
        SandboxUnavailable, SandboxFault: The engine, or the installer, could not do it.
    """
    if lock:
        keep(engine, key_of(base, lock), evaluator, progress, lambda key: _build(engine, key, base, lock, progress))


def keep(engine: Engine, key: str, evaluator: str, progress: Progress, build: Callable[[str], None]) -> None:
    """Has a layer built if it is not there, by one process at a time, and notes that the evaluator uses it."""
    if not _exists(engine, key):
        with alone(_lock(key), progress, "another process that builds the same layer"):
            if not _exists(engine, key):  # or else somebody has built it while we waited
                build(key)
    presence.note_use(key, evaluator)


def _exists(engine: Engine, key: str) -> bool:
    from docker.errors import ImageNotFound

    with engine.translated("a layer was looked for"):
        try:
            engine.client.images.get(f"{presence.REPOSITORY}:{key}")
        except ImageNotFound:
            return False
    return True


def _build(engine: Engine, key: str, base: Base, lock: str, progress: Progress) -> None:
    with _workplace(key) as scratch:
        target = scratch / "packages"
        platform = installing.platform_of(base.machine, base.libc)
        size = installing.install(
            lock, target, python=base.python, platform=platform, progress=progress, withheld=engine.withheld
        )
        labels = _labels(key, base, lock)
        with _builder(engine, base, labels) as container:
            progress(f"Copying {size / 1e6:,.0f} MB of packages into the layer")
            _copy(engine, target, container)
            progress("Compiling the packages")
            _compile(engine, container)
            progress("Keeping the layer")
            commit(engine, container, key, labels)


@contextmanager
def _workplace(key: str) -> Iterator[Path]:
    """A directory to unpack into. What builds have left that were killed is removed first: nobody holds their locks."""
    home = private_dir(presence.notes() / "work")
    for left in home.iterdir():
        with contextlib.suppress(Timeout), FileLock(_lock(left.name), timeout=0):
            discard(left)
    place = home / key
    discard(place)
    place.mkdir(mode=0o700)
    try:
        yield place
    finally:
        discard(place)


def _lock(key: str) -> Path:
    return presence.notes() / f"{key}.lock"


@contextmanager
def _builder(engine: Engine, base: Base, labels: dict[str, str]) -> Iterator[str]:
    """A container of the base in which packages are compiled: without network, and with nothing of ours in it."""
    processes = "1" if base.own_kernel else "0"  # gVisor loses those of a pool
    command = [base.command, "-s", "-S", *_COMPILE, "-j", processes]
    shape = box.Shape(memory_bytes=_COMPILE_BYTES, user=_ROOT, builds=True, own_kernel=base.own_kernel, labels=labels)
    with engine.translated("a layer was begun"):
        container = box.create(engine, base.image, command, shape)
    try:
        yield container
    finally:
        engine.discard(container)


def _copy(engine: Engine, target: Path, container: str) -> None:
    """Streams the packages into the container: they are never whole in memory."""
    reading, writing = os.pipe()
    failed: list[BaseException] = []

    def write() -> None:
        try:
            with open(writing, "wb") as out, tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # noqa: PTH123
                archive.add(target, arcname=PACKAGES.lstrip("/"), filter=_anonymous)
        except BaseException as error:  # noqa: BLE001 - raised below, by the thread that waits for it
            failed.append(error)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    with open(reading, "rb") as data, engine.translated("packages were copied into a layer"):  # noqa: PTH123
        engine.api.put_archive(container, "/", iter(lambda: data.read(1 << 20), b""))
    writer.join()
    if failed and not isinstance(failed[0], BrokenPipeError):
        raise failed[0]


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without the user's name and without times. A directory that only its owner may enter would shut out the guest."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


def _compile(engine: Engine, container: str) -> None:
    """Compiles what compiles: some packages carry files for other Pythons, which nobody imports in this one."""
    from requests.exceptions import RequestException

    api = engine.api
    with engine.translated("packages were compiled"):
        api.start(container)
        try:
            code = api.wait(container, timeout=_COMPILE_SECONDS)["StatusCode"]
        except RequestException as error:
            raise SandboxFault(f"The packages were not compiled within {_COMPILE_SECONDS} s.") from error
    if code not in (0, 1):
        raise SandboxFault(f"The packages could not be compiled: exit code {code}.")


def _labels(key: str, base: Base, lock: str) -> dict[str, str]:
    return {
        LAYER: key,
        "evalcell.base": base.digest,
        "evalcell.base.name": base.name,
        BELOW: base.image,
        "evalcell.python": base.python,
        "evalcell.packages": " ".join(locking.packages(lock, base.python)),
        "evalcell.built": str(int(time.time())),
    }


def commit(engine: Engine, container: str, key: str, labels: dict[str, str]) -> None:
    """Makes a layer of a container that has these labels already: Podman takes them from there, and from nowhere else.

    Nobody owns a layer, as somebody does the container. One that another machine has built meanwhile loses its name to
    it, and goes unless it is in use.
    """
    with engine.translated("a layer was kept"):
        engine.api.commit(
            container, repository=presence.REPOSITORY, tag=key, pause=False, conf={"Labels": {**labels, OWNER: ""}}
        )
    presence.remove_spares(engine, key)
