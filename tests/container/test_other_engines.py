"""Packages and assets on Podman and on gVisor, from the command to the record, and nothing left behind."""

import json
import os
import secrets
from contextlib import closing

import docker
import pytest
from packages import served
from waiting import until

from evalcell_sandboxes.container import engine as engines
from evalcell_sandboxes.container.engine import OWNER, Engine, _is_gone, _is_left

BLOCK = '# /// script\n# dependencies = ["murmur"]\n# [tool.evalcell]\n# assets = ["words.txt"]\n# ///\n'
SOURCE = """
import os, murmur

def evaluate(output):
    with open("words.txt") as words:
        return {"label": murmur.LOW + words.read(), "score": os.path.exists(murmur.__cached__)}
"""


@pytest.fixture(params=["podman", "runsc"])
def site(request):
    return request.getfixturevalue(f"{request.param}_wall").site


@pytest.fixture
def version():
    """Another each time: a lock is kept, and the next wheel of the same version would be another file."""
    return f"1.{secrets.randbelow(10**9)}"


@pytest.fixture
def environment(tmp_path, monkeypatch, version):
    """An index of the tests' own, and a data directory."""
    for name in list(os.environ):
        if name.startswith(("UV_", "PIP_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    with served() as index:
        index.wheel("murmur", version, {"murmur/__init__.py": "LOW = 'low'\n"})
        yield {
            "UV_DEFAULT_INDEX": index.address,
            "UV_HTTP_RETRIES": "0",
            "EVALCELL_DATA_DIR": str(tmp_path / "data"),
        }


def test_packages_and_assets_work_on_every_engine(site, environment, version, evalcell, write, rows):
    flags = ["--engine", site.engine, *(["--runtime", site.runtime] if site.runtime else [])]
    added = evalcell("sandboxes", "add", "elsewhere", "--dep", f"murmur=={version}", *flags, env=environment)
    assert added.code == 0, added.err
    write("words.txt", " and words")
    data = rows([{"output": number} for number in range(3)])
    evaluator = write("murmuring.py", BLOCK + SOURCE)

    def mine():
        listed = evalcell("layers", "list", "--sandbox", "elsewhere", "--json", env=environment).json()
        return [layer for layer in listed if "murmuring.py" in layer["evaluators"]]

    try:
        done = evalcell(
            *("run", evaluator, "--data", data, "--sandbox", "elsewhere", "--out", "-"), env=environment, seconds=300
        )
        assert done.code == 0, done.err
        found = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
        assert [(record["label"], record["score"]) for record in found] == [("low and words", 1.0)] * 3
        assert {(*layer["packages"], *layer["assets"]) for layer in mine()} == {(f"murmur=={version}",), ("words.txt",)}
    finally:
        keys = [layer["key"] for layer in mine()]
        removed = evalcell("layers", "rm", *keys, "--sandbox", "elsewhere", env=environment)
    assert removed.code == 0, removed.err
    assert mine() == []
    with closing(docker.DockerClient(base_url=site.engine)) as client:
        assert until(lambda: left_on(client) == []), left_on(client)


def left_on(client):
    """What nobody will remove any more; others run tests here too, and have just ended some of theirs."""
    containers = client.api.containers(all=True, filters={"label": OWNER})
    volumes = client.api.volumes(filters={"label": OWNER})["Volumes"] or ()
    return [container["Id"] for container in containers if _is_left(container)] + [
        volume["Name"] for volume in volumes if _is_gone(volume["Labels"][OWNER])
    ]


def test_volumes_of_other_machines_are_swept_when_they_are_old(podman_wall, monkeypatch):
    engine = Engine(podman_wall.site)
    engine.api.create_volume("evalcell-foreign", labels={OWNER: "elsewhere 1 1"})
    try:
        engine.sweep()
        assert _volumes(engine) == ["evalcell-foreign"]
        monkeypatch.setattr(engines, "_ABANDONED_SECONDS", -1.0)
        engine.sweep()
        assert _volumes(engine) == []
    finally:
        engine.discard("evalcell-foreign")


def _volumes(engine):
    return [
        volume["Name"] for volume in engine.api.volumes(filters={"label": f"{OWNER}=elsewhere 1 1"})["Volumes"] or ()
    ]


def test_a_runtime_that_the_engine_does_not_know_is_named_with_those_that_it_has(engine_address, evalcell, write, rows):
    done = evalcell(
        *("run", write("e.py", "def evaluate(output): return 1\n"), "--data", rows([{"output": 1}])),
        *("--sandbox", "container", "--runtime", "runcs"),
    )
    assert done.code == 4
    assert "runcs" in done.err
    assert "runc" in done.err.replace("runcs", "")
