"""A real engine, and a Python to run in it that came from no registry."""

import functools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import docker
import pytest
from promises import lacking

from evalcell_sandboxes import silent
from evalcell_sandboxes.container import bases, packing, seccomp
from evalcell_sandboxes.container.engine import Engine
from evalcell_sandboxes.site import Site

TEST_ENGINE = Path(__file__).parent.parent.parent / "tools" / "test-engine"


def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(TEST_ENGINE), *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def engine(engine_address) -> Iterator[docker.DockerClient]:
    with closing(docker.DockerClient(base_url=engine_address, timeout=120)) as client:
        yield client


@pytest.fixture(scope="session")
def usual_engine(engine_address) -> Engine:
    """The same, as the wall knows it."""
    return Engine(Site(engine=engine_address))


@pytest.fixture(scope="session")
def usual_base(usual_engine, container_wall) -> bases.Base:
    """The image that the wall stands on there."""
    return bases.current(usual_engine)


@pytest.fixture(scope="session")
def archive(tmp_path_factory) -> tuple[Path, packing.Packed]:
    """This host's Python, packed."""
    target = tmp_path_factory.mktemp("packed") / "base.tar"
    return target, packing.pack(target, silent)


@pytest.fixture(scope="session")
def base(engine, archive) -> str:
    """The name of the image that holds it."""
    path, packed = archive
    engine.api.import_image_from_file(str(path), repository="evalcell-test-base", tag=packed.digest[:16])
    return f"evalcell-test-base:{packed.digest[:16]}"


@pytest.fixture(scope="session")
def contained(engine, base) -> Callable[..., Any]:
    """Makes a container as evaluators get it: no network, no capabilities, nothing to write to but a small /tmp."""

    def contained(code: str, *, allowed: str | None = None, image: str = base, **options: Any) -> Any:
        filtered = [f"seccomp={allowed}"] if allowed else []  # else the engine's own profile
        settings = {
            "user": f"{packing.USER_ID}:{packing.USER_ID}",
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges", *filtered],
            "network_mode": "none",
            "ipc_mode": "none",
            "read_only": True,
            "tmpfs": {"/tmp": "size=64m,noexec,nosuid,nodev,mode=1777"},
            "pids_limit": 256,
            "mem_limit": "1g",
        }
        return engine.containers.create(image, ["python3", "-c", code], **{**settings, **options})

    return contained


@pytest.fixture(scope="session")
def run(contained) -> Callable[..., str]:
    """Runs code in such a container and gives what it printed; a code that fails fails the test with its traceback."""

    def run(code: str, **options: Any) -> str:
        container = contained(code, **options)
        try:
            container.start()
            status = container.wait(timeout=90)["StatusCode"]
            assert status == 0, container.logs().decode()
            return container.logs(stdout=True, stderr=False).decode()
        finally:
            container.remove(force=True)

    return run


@pytest.fixture(scope="session")
def ours() -> str:
    return seccomp.profile(platform.machine())


class OwnEngine(NamedTuple):
    """An engine that nobody else uses, so that one can count what is on it, and kill it."""

    address: str
    pid: int
    client: docker.DockerClient

    @property
    def containers(self) -> list[Any]:
        return self.client.api.containers(all=True)

    @property
    def images(self) -> set[str]:
        return {image["Id"] for image in self.client.api.images(all=True)}


@pytest.fixture
def own_engine(starting) -> Iterator[OwnEngine]:
    """A second engine, with the base image on it."""
    with starting() as own:
        yield own


@pytest.fixture
def starting(engine, usual_base) -> Callable[..., AbstractContextManager[OwnEngine]]:
    """Starts a further engine as it is told, with the base image on it."""
    return functools.partial(_started, engine, usual_base)


@contextmanager
def _started(
    engine: docker.DockerClient, usual_base: bases.Base, *options: str, kind: str = "docker"
) -> Iterator[OwnEngine]:
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("dockerd", path="/usr/sbin:/usr/bin") is None:
        lacking("an engine of our own needs Linux, root and dockerd")
    home = Path(tempfile.mkdtemp(prefix="engine-", dir="/tmp"))

    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(TEST_ENGINE), "--home", str(home), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    started = ask("start", "--own", "--kind", kind, *options)
    try:
        assert started.returncode == 0, started.stderr
        address = started.stdout.strip()
        with closing(docker.DockerClient(base_url=address, timeout=60)) as client:
            client.images.load(engine.images.get(usual_base.image).save(named=bases.packed_name()))
            yield OwnEngine(
                address, int(Path(address.removeprefix("unix://")).with_name("docker.pid").read_text()), client
            )
    finally:
        ask("stop", "--purge")
        shutil.rmtree(home)
