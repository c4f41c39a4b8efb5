"""What a base image may bring along, and what is left out of it."""

import io
import tarfile

import pytest
from boxed import ask, boxed, value

from evalcell_sandboxes import Sandbox, SandboxUnavailable, Site, sandbox, silent


@pytest.fixture
def based_on(engine, engine_address, archive):
    """Makes a wall on an image that differs from the usual one."""
    names = []

    def based_on(change: str) -> Sandbox:
        names.append(f"evalcell-test-other:{len(names)}")
        engine.api.import_image_from_file(
            str(archive[0]), repository="evalcell-test-other", tag=names[-1].partition(":")[2], changes=[change]
        )
        return sandbox("container", Site(engine=engine_address, base=names[-1]))

    yield based_on
    for name in names:
        engine.images.remove(name, force=True)


def test_an_image_with_a_volume_is_refused(based_on):
    wall = based_on("VOLUME /workspace")
    with pytest.raises(SandboxUnavailable, match="declares the volume '/workspace'.*Name an image without volumes"):
        wall.prepare(None, silent)


def test_words_on_stderr_do_not_spoil_what_an_image_says_of_itself(based_on):
    based_on("ENV LD_PRELOAD=/nowhere.so").prepare(None, silent)


def test_an_image_without_python_is_named(engine, engine_address):
    with io.BytesIO() as archive:
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.addfile(tarfile.TarInfo("nothing"))
        engine.api.import_image_from_data(archive.getvalue(), repository="evalcell-test-empty", tag="1")
    wall = sandbox("container", Site(engine=engine_address, base="evalcell-test-empty:1"))
    try:
        with pytest.raises(SandboxUnavailable, match="has no usable python3: .*Name an image with Python in it in"):
            wall.prepare(None, silent)
    finally:
        engine.images.remove("evalcell-test-empty:1", force=True)


COUNT = """
import os, time
def evaluate(output):
    seen = 0
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        seen = max(seen, sum(name.isdigit() for name in os.listdir("/proc")))
        time.sleep(0.01)
    return seen
"""


def test_what_an_image_would_run_to_check_its_health_is_not_run(based_on):
    wall = based_on('HEALTHCHECK --interval=1s CMD ["sleep", "1"]')
    wall.prepare(None, silent)
    with boxed(wall, COUNT, isolation="evaluator") as session:
        assert value(*ask(session, "x")) == 3, "the supervisor, the process that loaded the module, and the row's"
