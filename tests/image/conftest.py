"""The image of evalcell itself, built once: on a Debian that came from no registry, from wheels, without a network."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import docker
import pytest
from promises import lacking

from evalcell_sandboxes.container import engine as ours

ROOT = Path(__file__).parent.parent.parent
BASE = "evalcell-test-debian"
NAME = "evalcell-test-image"
CANARY = "canary-7f1c-of-this-machine"
_PACKAGES = ("?essential", "python3-venv")
_NEVER_COPIED = (".git", ".venv", ".engine", ".*_cache", ".hypothesis", "__pycache__", "wheels", "dist", "build", "env")
DECOYS = (
    ".git/config",
    ".env",
    ".venv/pip.conf",
    "wheelhouse/pip.conf",
    "runtime/evalcell/__pycache__/x.pyc",
    "id_rsa",
)
"""What may lie around where somebody builds, and must not get into the image."""


class Image(NamedTuple):
    """The image, and the one that its build stage is."""

    name: str
    build_stage: str
    canary: str
    """Written in files that lay around where it was built."""


@pytest.fixture(scope="session")
def engine(engine_address) -> Iterator[docker.DockerClient]:
    if not engine_address.startswith("unix://"):
        lacking("directories and the socket of this machine can only be mounted where the engine shares it")
    with closing(docker.DockerClient(base_url=engine_address, timeout=600)) as client:
        yield client


@pytest.fixture(scope="session")
def socket(engine_address) -> Path:
    return Path(engine_address.removeprefix("unix://"))


@pytest.fixture(scope="session")
def image(engine, tmp_path_factory) -> Iterator[Image]:
    """Built as anybody would: by this project's Dockerfile, out of a directory where other things lie around too."""
    context = tmp_path_factory.mktemp("context") / "evalcell"
    shutil.copytree(ROOT, context, ignore=shutil.ignore_patterns(*_NEVER_COPIED))
    for decoy in DECOYS:
        (context / decoy).parent.mkdir(parents=True, exist_ok=True)
        (context / decoy).write_text(CANARY)
    base, python = debian(engine, tmp_path_factory.mktemp("debian"))
    collect_wheels(context / "wheels", python)
    made = Image(f"{NAME}:latest", f"{NAME}:build", CANARY)
    try:
        for tag, stage in ((made.build_stage, "build"), (made.name, "")):
            build(engine, context, base, tag, stage)
        yield made
    finally:
        for name in (made.name, made.build_stage):
            remove(engine, name)


def build(engine: docker.DockerClient, context: Path, base: str, tag: str, stage: str) -> None:
    said = []
    for event in engine.api.build(
        path=str(context), tag=tag, target=stage, buildargs={"BASE": base}, network_mode="none", rm=True, decode=True
    ):
        said.append(event.get("stream", ""))
        assert "error" not in event, "".join([*said[-40:], event.get("error", "")])


def remove(engine: docker.DockerClient, name: str) -> None:
    with suppress(docker.errors.ImageNotFound):
        engine.images.remove(name, force=True)


def collect_wheels(target: Path, python: str) -> None:
    command = ["make", "wheels", f"WHEELS={target}", f"IMAGE_PYTHON={python}", f"BIN={Path(sys.executable).parent}"]
    command += ["-o", ".venv/installed"]  # which runs this very test
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# -- a base, out of Debian's packages -------------------------------------------------------------------------------
def debian(engine: docker.DockerClient, scratch: Path) -> tuple[str, str]:
    """An image like the official one of Python, and the version of its Python. It is kept, under a name of its own."""
    if shutil.which("apt-get") is None:
        lacking("there is no apt-get to make a base image with, and no registry is taken for granted")
    wanted = apt(scratch, "--print-uris").stdout
    name = f"{BASE}:{hashlib.sha256(wanted.encode()).hexdigest()[:16]}"
    python = next(line for line in wanted.splitlines() if "/python3-venv_" in line).split("_")[1].rpartition(".")[0]
    if not engine.images.list(name):
        apt(scratch, "--download-only")
        archive = scratch / "base.tar"
        lay_out(scratch, archive)
        engine.api.import_image_from_file(str(archive), repository=BASE, tag=name.partition(":")[2])
    return name, python


def apt(scratch: Path, how: str) -> subprocess.CompletedProcess[str]:
    """Asks for the packages as on a machine that has none; nothing of this one is changed."""
    places = {name: scratch / name for name in ("archives", "lists")}
    for place in places.values():
        (place / "partial").mkdir(parents=True, exist_ok=True)
    settings = {
        "Dir::State::status": "/dev/null",
        "Dir::Cache::archives": places["archives"],
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
    }
    command = [how, "-y", "install", *_PACKAGES]
    done = apt_get(settings, command)
    if done.returncode != 0:  # this machine's lists may be missing, or too old, or just being renewed
        settings["Dir::State::lists"] = places["lists"]
        apt_get(settings, ["update"])
        done = apt_get(settings, command)
    assert done.returncode == 0, done.stderr
    return done


def apt_get(settings: dict[str, object], command: list[str]) -> subprocess.CompletedProcess[str]:
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    return subprocess.run(["apt-get", "-qq", *options, *command], capture_output=True, text=True, check=False)


def lay_out(scratch: Path, archive: Path) -> None:
    """Unpacks the packages into one tree. Their scripts are not run: what is left to do is little."""
    root = scratch / "root"
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in sorted((scratch / "archives").glob("*.deb")):
        content = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", root, "--keep-directory-symlink"], input=content, check=True)
    (root / "tmp").chmod(0o1777)
    subprocess.run(["tar", "-c", "-C", root, "-f", archive, "--owner=0", "--group=0", "."], check=True)


# -- running it -----------------------------------------------------------------------------------------------------
@pytest.fixture(scope="session")
def packed(engine, image) -> Iterator[str]:
    """The base image that evalcell packs where it finds none: the CPython of its own image."""
    code = "from evalcell_sandboxes.container import bases; print(bases.packed_name())"
    name = engine.containers.run(image.name, ["-c", code], entrypoint="python3", network_mode="none", remove=True)
    yield name.decode().strip()
    remove(engine, name.decode().strip())


@pytest.fixture
def work(tmp_path) -> Path:
    """A directory to mount, which the image's own user may read."""
    for name in ("json_distance.py", "json_distance.ts", "extraction.jsonl", "starter.py", "starter.jsonl"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    tmp_path.chmod(0o755)
    return tmp_path


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(engine, image, work, socket):
    """Runs the image on the mounted directory, as `docker run --rm` does, and with the engine's socket if it says so."""
    made = []

    def run(*arguments: str, with_engine: bool = False, waits: bool = True, **options):
        mounts = [f"{work}:/work:ro"]
        if with_engine:
            mounts.append(f"{socket}:/var/run/docker.sock")
            options["group_add"] = [socket.stat().st_gid]
        settings = {"network_mode": "none", "volumes": mounts, **options}
        container = engine.containers.create(image.name, list(arguments), **settings)
        made.append(container)
        container.start()
        return outcome(container) if waits else container

    yield run
    for container in made:
        container.remove(force=True, v=True)


def outcome(container) -> Done:
    code = container.wait(timeout=150)["StatusCode"]
    return Done(code, *(container.logs(stdout=out, stderr=not out).decode() for out in (True, False)))


@pytest.fixture
def evaluators_left(engine):
    """Which containers of evaluators are on the engine that were not before, and that no process here has made."""

    def found() -> set[str]:
        labelled = engine.api.containers(all=True, filters={"label": ours.OWNER})
        return {one["Id"] for one in labelled if not ours._is_known(one["Labels"][ours.OWNER])}

    before = found()
    return lambda: found() - before
