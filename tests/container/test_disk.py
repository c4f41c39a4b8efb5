"""Layers within a budget, on a real engine, while a run is under way."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from packages import served

from evalcell import disk
from evalcell_sandboxes import Program, Site, sandbox, silent
from evalcell_sandboxes.container import bases
from evalcell_sandboxes.container import layers as building
from evalcell_sandboxes.container import presence as kept
from evalcell_sandboxes.container.engine import Engine
from evalcell_sandboxes.disk import held
from evalcell_sandboxes.wasm import module

BLOCK = '# /// script\n# dependencies = ["{}"]\n# ///\n'
QUICK = "def evaluate(output):\n    return output\n"
SHIPPING = """# /// script
# dependencies = ["first"]
# [tool.evalcell]
# assets = ["words.txt"]
# ///
def evaluate(output):
    return output
"""
SLOW = "import time\n\ndef evaluate(output):\n    time.sleep(0.2)\n    return output\n"


on_both = pytest.mark.parametrize("own_engine", ["docker", "podman"], indirect=True)
"""They differ in what they do with an image that another stands on: one takes its name away, the other removes it."""


@pytest.fixture
def own_engine(starting, request):
    """An engine of its own for every test, of the kind that it asks for."""
    with starting(kind=getattr(request, "param", "docker")) as own:
        yield own


@pytest.fixture
def machine(tmp_path, monkeypatch, own_engine):
    """The environment of a machine of its own: engine, index and cache, in which only the module is at hand."""
    compiled = module.path()
    cache = tmp_path / "cache" / "wasm"
    cache.mkdir(parents=True)
    for place in (cache, cache.parent):
        place.chmod(0o700)
    shutil.copy(compiled, cache / compiled.name)
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
    with served() as index:
        for name in ("first", "second", "third"):
            index.wheel(name, "1.0", {f"{name}.py": "X = 1\n"})
        yield {
            **kept,
            "EVALCELL_CACHE_DIR": str(tmp_path / "cache"),
            "DOCKER_HOST": own_engine.address,
            "UV_DEFAULT_INDEX": index.address,
            "UV_HTTP_RETRIES": "0",
        }


@pytest.fixture
def shipped(machine, write, monkeypatch, evalcell, own_engine):
    """The wall after an evaluator with a package and an asset was built; its layers, what stands on the other first."""
    monkeypatch.setenv("EVALCELL_CACHE_DIR", machine["EVALCELL_CACHE_DIR"])
    write("words.txt", "alpha " * 50_000)
    built = evalcell("layers", "build", write("judge.py", SHIPPING), env=machine)
    assert built.code == 0, built.err
    site = Site(engine=own_engine.address)
    top, below = sorted(kept.found(Engine(site)), key=lambda layer: not layer.assets)
    assert top.stands_on == below.image
    return sandbox("container", site), top, below


def layers(environment):
    listed = subprocess.run(
        [sys.executable, "-m", "evalcell", "layers", "list", "--json"], env=environment, capture_output=True, check=True
    )
    return {package.partition("==")[0] for layer in json.loads(listed.stdout) for package in layer["packages"]}


def on_engine(gone):
    """Without the downloads and the copies of assets, which are not on the engine."""
    return [item.key for item in gone if item.kind in ("layer", "base")]


def test_a_layer_in_use_stays_and_one_that_is_not_goes(machine, tmp_path, write, rows):
    data = rows([{"output": number} for number in range(40)])

    def start(name, source, **environment):
        evaluator, out = write(f"{name}.py", BLOCK.format(name) + source), tmp_path / f"{name}.jsonl"
        return subprocess.Popen(
            [sys.executable, "-m", "evalcell", "run", evaluator, "--data", data, "--workers", "1", "--out", out],
            env={**machine, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(run):
        said, _ = run.communicate(timeout=120)
        assert run.returncode == 0, said

    finish(start("third", QUICK))
    assert layers(machine) == {"third"}
    slow = start("first", SLOW)
    until = time.monotonic() + 60
    while not (tmp_path / "first.jsonl.partial").exists() and time.monotonic() < until:
        time.sleep(0.1)
    finish(start("second", QUICK, EVALCELL_DISK_BYTES="1"))
    assert slow.poll() is None
    assert layers(machine) == {"first", "second"}
    finish(slow)
    finish(start("third", QUICK, EVALCELL_DISK_BYTES="1kB"))
    assert layers(machine) == {"third"}
    assert len((tmp_path / "first.jsonl").read_text().splitlines()) == 40


@on_both
def test_all_that_an_evaluator_stands_on_is_counted_and_nothing_twice(shipped, own_engine):
    wall, top, below = shipped
    image = {image["Id"]: image["Size"] for image in own_engine.client.api.images(all=True)}
    sizes = disk.sizes([wall])
    assert sizes["base"] == image[below.stands_on]
    assert sizes["layer"] == top.size_bytes + below.size_bytes
    assert sizes["base"] + sizes["layer"] == image[top.image]


@on_both
def test_what_others_stand_on_goes_after_them_and_leaves_nothing_behind(shipped, own_engine):
    wall, top, below = shipped
    sizes = disk.sizes([wall])
    gone = disk.prune([wall], sizes["base"] + below.size_bytes)
    assert on_engine(gone) == [top.key]
    assert own_engine.images == {below.image, below.stands_on}
    gone = disk.prune([wall], 0)
    assert on_engine(gone) == [below.key, below.stands_on]
    assert own_engine.images == set()


@on_both
def test_all_goes_at_once_where_there_is_no_room_for_any(shipped, own_engine):
    wall, top, below = shipped
    gone = disk.prune([wall], 0)
    assert on_engine(gone) == [top.key, below.key, below.stands_on]
    assert own_engine.images == set()


@on_both
def test_what_others_stand_on_stays_as_long_as_they_do(shipped, own_engine):
    wall, top, below = shipped
    with held(kept.held_as(top.key)):
        gone = disk.prune([wall], 0)
    assert on_engine(gone) == []
    assert own_engine.images == {top.image, below.image, below.stands_on}
    assert {layer.key for layer in kept.found(Engine(wall.site))} == {top.key, below.key}


def built_again(own_engine, layer):
    """Builds the same layer as another machine would, which has found none a moment ago."""
    labels = own_engine.client.api.inspect_image(layer.image)["Config"]["Labels"]
    container = own_engine.client.api.create_container(layer.stands_on, ["python3"], labels=labels)["Id"]
    building.commit(Engine(Site(engine=own_engine.address)), container, layer.key, labels)
    own_engine.client.api.remove_container(container)


@on_both
def test_a_layer_that_two_machines_have_built_at_once_is_there_once(shipped, own_engine):
    wall, top, below = shipped
    built_again(own_engine, top)
    (again,) = (layer for layer in kept.found(Engine(wall.site)) if layer.key == top.key)
    assert again.image != top.image
    assert own_engine.images == {again.image, below.image, below.stands_on}


@on_both
def test_what_was_in_use_when_it_was_built_again_goes_with_its_layer(shipped, machine, own_engine, evalcell):
    wall, top, below = shipped
    using = own_engine.client.api.create_container(top.image, ["python3"])["Id"]
    built_again(own_engine, top)
    assert len(own_engine.images) == 4
    (again,) = (layer for layer in kept.found(Engine(wall.site)) if layer.key == top.key)
    assert again.size_bytes >= top.size_bytes > 0, "which is still there, and the other one is nearly empty"
    refused = evalcell("layers", "rm", top.key[:12], env=machine)
    assert "is in use" in refused.err
    own_engine.client.api.remove_container(using)
    removed = evalcell("layers", "rm", top.key[:12], env=machine)
    assert removed.err == ""
    assert own_engine.images == {below.image, below.stands_on}


ODD_LABELS = [
    {"evalcell.layer": "abc"},
    {"evalcell.layer": "a" * 32, "evalcell.assets": "oops"},
    {"evalcell.layer": "a" * 32, "evalcell.built": "yesterday"},
    {},  # so it has those of what it was built on
]


def test_images_of_others_are_left_alone_whatever_is_said_of_them(shipped, machine, own_engine, evalcell):
    wall, top, below = shipped
    theirs = set()
    for number, labels in enumerate(ODD_LABELS):
        container = own_engine.client.api.create_container(top.image, ["python3"], labels=labels)["Id"]
        for name in (f"theirs-{number}", None):
            made = own_engine.client.api.commit(
                container, repository=name, conf={"Labels": labels, "Env": [f"N={name}"]}
            )
            theirs.add(made["Id"])
        own_engine.client.api.remove_container(container)
    assert len(theirs) == 2 * len(ODD_LABELS)
    listed = evalcell("layers", "list", "--json", env=machine)
    assert listed.code == 0, listed.err
    assert {layer["key"] for layer in listed.json()} == {top.key, below.key}
    assert disk.sizes([wall])["layer"] == top.size_bytes + below.size_bytes
    disk.prune([wall], 0)
    assert own_engine.images == {*theirs, top.image, below.image, below.stands_on}, "which they stand on"


def test_a_base_that_is_made_anew_while_it_is_held_is_held_too(shipped, own_engine):
    wall, _, _ = shipped
    base = bases.current(Engine(wall.site))
    with wall.holding(Program(source="", filename="e.py")):
        disk.prune([wall], 0)
        assert own_engine.images == {base.image}
        own_engine.client.api.remove_image(base.image, force=True)
        wall.prepare(None, silent)
        again = bases.current(Engine(wall.site))
        assert again.image != base.image
        disk.prune([wall], 0)
        assert own_engine.images == {again.image}
    disk.prune([wall], 0)
    assert own_engine.images == set()


@on_both
def test_a_layer_that_another_stands_on_is_removed_with_it_or_not_at_all(shipped, machine, own_engine, evalcell):
    _, top, below = shipped
    refused = evalcell("layers", "rm", below.key, env=machine)
    assert refused.out == "0 MB freed.\n"
    assert f"evalcell layers rm {top.key[:12]}" in " ".join(refused.err.split())
    assert own_engine.images == {top.image, below.image, below.stands_on}
    removed = evalcell("layers", "rm", below.key, top.key, env=machine)
    assert removed.err == ""
    assert own_engine.images == {below.stands_on}
