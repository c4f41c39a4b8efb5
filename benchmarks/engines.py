"""Where containers are measured: an engine that is found or started, and on it a base image and a cache for this alone.

A layer is named by its base and its lock. On a base of our own nothing that others have built is used or removed: the
first run has no layer yet, and all that it makes is removed in the end.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from evalcell_sandboxes import sandbox
from evalcell_sandboxes.caching import cache_dir, private_dir
from evalcell_sandboxes.container import bases
from evalcell_sandboxes.container.engine import Engine
from evalcell_sandboxes.site import here

_TOOL = Path(__file__).parent.parent / "tools" / "test-engine"
_REPOSITORY = "evalcell-bench"


class NoEngine(Exception):
    """There is none, or it cannot be used; the message says why."""


@contextmanager
def own_ground(scratch: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Until it is left, this process and all that it starts run containers on a base with no layers and an empty cache.

    The guest that parses evaluators is in that cache: an install brings it.

    Raises:
        NoEngine: Containers cannot be measured here.
    """
    with _engine(), _base(tell) as base:
        cache = private_dir(scratch / "containers")
        shutil.copytree(cache_dir() / "wasm", private_dir(cache / "wasm"), dirs_exist_ok=True)
        with _environment({bases.SETTING: base, "EVALCELL_CACHE_DIR": str(cache)}):
            yield


@contextmanager
def _engine() -> Iterator[None]:
    """An engine that answers. One that had to be started is stopped again."""
    was_there = _test_engine("status").returncode == 0
    started = _test_engine("start")
    if started.returncode != 0:
        raise NoEngine(started.stderr.strip().removeprefix("test-engine: "))
    try:
        with _environment({"DOCKER_HOST": started.stdout.strip()}):
            if reason := sandbox("container").unavailable_reason():
                raise NoEngine(reason)
            yield
    finally:
        if not was_there:
            _test_engine("stop")


def _test_engine(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([_TOOL, command], capture_output=True, text=True, check=False)


@contextmanager
def _base(tell: Callable[[str], None]) -> Iterator[str]:
    """The usual base image under a name and a digest of its own."""
    engine = Engine(here())
    usual = bases.find(engine, lambda step, _fraction=None: tell(step))
    api, tag = engine.api, uuid4().hex
    container = api.create_container(usual.image, command=[usual.command])["Id"]
    try:
        # What is in a base is told by this label where there is one; with another, nobody's layers fit it.
        api.commit(container, repository=_REPOSITORY, tag=tag, conf={"Labels": {"evalcell.digest": tag}})
    finally:
        api.remove_container(container)
    try:
        yield f"{_REPOSITORY}:{tag}"
    finally:
        for image in api.images(filters={"label": f"evalcell.base={tag}"}):
            for name in image["RepoTags"] or ():
                with suppress(Exception):  # the base is still to be removed
                    api.remove_image(name)
        api.remove_image(f"{_REPOSITORY}:{tag}")


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Sets variables for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
