"""The image of evalcell itself: what is in it, that it does its job in the tightest of containers, and drives an engine."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from guides import commands, steps
from packages import served
from promises import lacking

from evalcell_sandboxes.container import presence

pytestmark = pytest.mark.timeout(600)  # the first test waits for the build
JOB = ("run", "json_distance.py", "--data", "extraction.jsonl", "--json")
TIGHT = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"], "pids_limit": 64}


def scores(text: str) -> dict:
    """What came out. Sums are made in the order in which rows are done, so the last digits may differ."""
    return json.loads(text, parse_float=lambda digits: round(float(digits), 12))["scores"]


# -- the main job ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="as-it-is"),
        pytest.param(TIGHT, id="nothing-to-write-to-and-no-rights"),
        pytest.param({**TIGHT, "user": "4321:4321"}, id="another-user"),
    ],
)
def test_the_main_job_gives_the_numbers_of_this_host(run, evalcell, work, options):
    done = run(*JOB, **options)
    assert (done.code, done.err) == (0, "")
    assert scores(done.out) == scores(evalcell(*JOB).out)


def test_records_are_written_as_the_user_who_is_named(run, work):
    work.chmod(0o777)
    done = run(*JOB, "--out", "records.jsonl", user="4321:4321", volumes=[f"{work}:/work"])
    assert done.code == 0, done.err
    assert (work / "records.jsonl").stat().st_uid == 4321
    assert len((work / "records.jsonl").read_text().splitlines()) == 24


def test_the_walls_hold_in_it(run):
    done = run("doctor", tmpfs={"/tmp": ""}, **TIGHT)
    assert "wasm ready" in done.out
    assert "deno ready" in done.out
    assert done.out.count("  ok ") == 16, done.out


@pytest.mark.parametrize("options", [pytest.param({}, id="as-it-is"), pytest.param(TIGHT, id="tight")])
def test_typescript_gives_the_numbers_of_this_host(run, evalcell, work, options):
    job = [argument.replace(".py", ".ts") for argument in JOB]
    done = run(*job, **options)
    assert (done.code, done.err) == (0, "")
    assert scores(done.out) == scores(evalcell(*job).out)


FIRST_RUN = f"evalcell {' '.join(JOB[:-1])} && find ~ -path '*/wasm/*.cwasm'"
REMOVE = "rm $(dirname $(python3 -c 'import evalcell_sandboxes as e; print(e.__file__)'))/wasm/*.cwasm"


def test_the_first_run_compiles_nothing_and_says_nothing_of_it(run):
    done = run("-c", FIRST_RUN, entrypoint="sh")
    assert (done.code, done.err) == (0, "")
    assert ".cwasm" not in done.out


def test_without_its_module_it_compiles_one_into_the_home_and_goes_on(run):
    """The control: the silence above is the module's doing."""
    done = run("-c", f"{REMOVE} && {FIRST_RUN}", entrypoint="sh", user="0:0")
    assert done.code == 0, done.err
    assert "Compiling Python for this machine" in done.err
    assert "/home/evalcell/.cache/evalcell/wasm/" in done.out


def test_it_ends_when_it_is_told_to(run, work):
    (work / "endless.py").write_text("def evaluate(output):\n    while True: pass\n")
    container = run("run", "endless.py", "--data", "extraction.jsonl", waits=False)
    time.sleep(2)
    began = time.monotonic()
    container.stop(timeout=60)
    assert time.monotonic() - began < 30
    assert container.wait()["StatusCode"] == 130


# -- what is in it --------------------------------------------------------------------------------------------------
def test_its_user_has_no_rights_and_can_write_to_nothing_but_the_home_and_places_for_everybody(run, engine, image):
    config = engine.images.get(image.name).attrs["Config"]
    assert config["User"] == "10001:10001"
    assert not config.get("Volumes")
    writable = "find / -xdev -writable ! -type l ! -perm -1777 ! -path '/proc/*' ! -path '/dev/*' 2>/dev/null"
    done = run("-c", f"id -u; {writable}; stat -c %a ~", entrypoint="sh")
    assert done.out.split() == ["10001", "1777"]


def test_it_holds_what_runs_and_nothing_that_builds(run):
    code = """
import importlib.util, pathlib
for name in ("evalcell", "wasmtime", "docker", "pyarrow", "pip", "hatchling", "componentize_py", "pytest"):
    print(name, importlib.util.find_spec(name) is not None)
for path in ("/src", "/wheels", "/build", "/dist", "/root/.cache", "/opt/evalcell/bin/uv"):
    print(path, pathlib.Path(path).exists())
"""
    done = run("-c", code, entrypoint="python3", user="0:0")
    there = {line.split()[0] for line in done.out.splitlines() if line.endswith("True")}
    assert there == {"evalcell", "wasmtime", "docker", "pyarrow", "/opt/evalcell/bin/uv"}


def contents(engine, name: str) -> Iterator[tuple[str, bytes]]:
    """Every file of every layer of an image, and its configuration and history as the engine gives them away."""
    saved = io.BytesIO(b"".join(engine.images.get(name).save()))
    with tarfile.open(fileobj=saved) as archive:
        for member in archive:
            held = archive.extractfile(member)
            if held is None:
                continue
            if not member.name.endswith("layer.tar"):
                yield member.name, held.read()
                continue
            with tarfile.open(fileobj=held) as layer:
                for file in layer:
                    data = layer.extractfile(file) if file.isfile() else None
                    yield file.name, data.read() if data else b""


def settings_of_this_machine() -> set[str]:
    """Where pip and uv look on this machine: addresses and directories that are nobody else's business."""
    said = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    settings = [line.partition("=") for line in said.splitlines()]
    values = [value for name, _, value in settings if name.endswith(("index-url", "find-links", "proxy"))]
    values += [value for name, value in os.environ.items() if name.startswith("UV_") and "IND" in name]
    words = {word.strip("'/") for value in values for word in value.replace("\\n", " ").split()}
    return {word for word in words if "/" in word and "pypi.org" not in word}


@pytest.mark.parametrize("stage", ["name", "build_stage"])
def test_nothing_of_this_machine_is_in_any_layer_or_in_the_history(engine, image, stage):
    private = [image.canary.encode(), *(word.encode() for word in settings_of_this_machine())]
    known, seen = b"json_distance", False
    for name, data in contents(engine, getattr(image, stage)):
        assert not {".git", ".env", "id_rsa"} & set(Path(name).parts), name
        for word in private:
            assert word not in data, f"{name} holds a setting of this machine"
        seen = seen or known in data
    assert seen, "what is in it would have been found"


# -- driving an engine ----------------------------------------------------------------------------------------------
CONTAINED = ("run", "starter.py", "--data", "starter.jsonl", "--sandbox", "container", "--json")


def test_with_the_engines_socket_evaluators_run_in_containers_beside_it(run, evalcell, work, packed, evaluators_left):
    done = run(*CONTAINED, with_engine=True, **TIGHT, tmpfs={"/tmp": "", "/home/evalcell": ""})
    assert done.code == 0, done.err
    assert scores(done.out) == scores(evalcell(*CONTAINED).out)
    assert not evaluators_left()


def test_evaluators_with_packages_run_too(run, work, engine, packed, evaluators_left):
    (work / "loud.py").write_text(
        '# /// script\n# dependencies = ["image-loudness"]\n# ///\n'
        "from image_loudness import loud\ndef evaluate(output): return loud(output)\n"
    )
    with served() as index:
        index.wheel("image-loudness", files={"image_loudness/__init__.py": "def loud(text): return text.isupper()\n"})
        done = run(
            *("run", "loud.py", "--data", "starter.jsonl", "--json"),
            with_engine=True,
            network_mode="host",
            environment={"UV_DEFAULT_INDEX": index.address},
        )
    for layer in engine.api.images(presence.REPOSITORY):
        if "image-loudness==1.0" in layer["Labels"].get("evalcell.packages", ""):
            engine.images.remove(layer["Id"], force=True)
    assert done.code == 0, done.err
    assert scores(done.out)["loud"]["scored"] == 3
    assert not evaluators_left()


SLOW = "import time\ndef evaluate(output):\n    time.sleep(4)\n    return 1\n"


def test_two_of_them_leave_each_others_containers_alone_and_one_that_is_killed_leaves_none(
    run, work, packed, evaluators_left
):
    (work / "slow.py").write_text(SLOW)
    slow = ("run", "slow.py", "--data", "starter.jsonl", "--sandbox", "container", "--json")
    first, killed = run(*slow, with_engine=True, waits=False), run(*slow, with_engine=True, waits=False)
    until = time.monotonic() + 60
    while len(evaluators_left()) < 2 and time.monotonic() < until:
        time.sleep(0.2)
    assert evaluators_left()
    assert run(*CONTAINED, with_engine=True).code == 0  # which looks for what others have left
    killed.kill()
    assert first.wait(timeout=120)["StatusCode"] == 0, first.logs().decode()
    assert scores(first.logs(stderr=False).decode())["slow"]["scored"] == 3
    until = time.monotonic() + 30
    while evaluators_left() and time.monotonic() < until:
        time.sleep(0.2)
    assert not evaluators_left()


# -- the guide ------------------------------------------------------------------------------------------------------
def test_the_commands_of_the_guide_print_what_it_shows(image, socket, work, packed, stable):
    if shutil.which("docker") is None:
        lacking("there is no `docker` to follow the guide with")
    done = 0
    for step in steps("docker.md"):
        if step["file"]:
            (work / step["file"]).write_text(step["content"], encoding="utf-8")
        elif step["language"] == "console":
            for command, shown in commands(step["content"]):
                here = command.replace("/var/run/docker.sock:", f"{socket}:").replace(
                    "%g /var/run", f"%g {socket.parent}"
                )
                here = here.replace(" evalcell ", f" {image.name} ")
                printed = subprocess.run(here, shell=True, cwd=work, capture_output=True, text=True, check=False)
                assert stable(printed.stdout) == stable(shown), printed.stderr
                done += 1
    assert done >= 2
