"""Values that were granted: canaries in the environment, which must turn up nowhere but inside the sandbox.

The code is clumsy, not hostile: it prints its token, raises it, returns it. The control shows that each of these ways
does lead out, with the same text given as an ordinary argument.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

import docker
import pytest
from packages import served
from watching import Watch

from evalcell_sandboxes import Site
from evalcell_sandboxes.caching import cache_path
from evalcell_sandboxes.container.engine import Engine
from evalcell_sandboxes.wasm import image

SOURCE = """
import os, sys, time

print("loading with", os.environ.get("CANARY", "nothing"))

def fit(rows):
    print("fitted with", os.environ.get("CANARY"))

def evaluate(output, secret=None):
    secret = secret or os.environ["CANARY"]
    time.sleep(0.02)
    if output == "print":
        print("token", secret)
        os.write(2, secret.encode())
        return 1.0
    if output == "raise":
        raise ValueError(f"cannot log in with {secret!r}")
    if output == "chain":
        try:
            {}[secret]
        except KeyError as error:
            raise RuntimeError(secret) from error
    if output == "label":
        return {"label": secret, "explanation": f"<{secret}>", "metadata": {"deep": [{secret: secret}]}}
    if output == "name":
        return {secret: 1.0, "other": 0.0}
    if output == "long":
        print("x" * 65_500 + secret)
        return 1.0
    if output == "long and more":
        sys.stdout.write("é" * ((65_536 - 20) // 2) + secret)
        sys.stdout.flush()
        os.write(1, b"hello")
        return 1.0
    if output == "nearly long":
        print("é" * 20 + "x" * (65_536 - 60) + secret)
        os.write(1, b"hello")
        return 1.0
    if output == "big error":
        raise ValueError("y" * 3_980 + secret)
    if output == "exit":
        sys.exit(secret)
    if output == "invalid":
        return {"score": secret}
    if output == "object":
        return type(secret, (), {})()
    return os.environ.get("HOME_OF_THE_HOST", "nothing else") == "nothing else" and len(secret)

def aggregate(results):
    raise ValueError("in the end: " + os.environ.get("CANARY", results[0]["id"]))
"""
WAYS = [
    "print",
    "raise",
    "chain",
    "label",
    "name",
    "long",
    "long and more",
    "nearly long",
    "big error",
    "exit",
    "invalid",
    "object",
    "length",
]


@pytest.fixture
def canary():
    return f"canary-{secrets.token_hex(12)}"


@pytest.fixture(params=["wasm", "container"])
def wall(request):
    if request.param == "container":
        request.getfixturevalue("container_wall")
    return request.param


def run(wall, write, rows, tmp_path, canary, *flags, environment=None):
    """Runs all ways out at once, and gives everything that anybody could read of it afterwards."""
    out = tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "evalcell", "run", write("clumsy.py", SOURCE), "--data"]
    command += [rows([{"id": f"row {way}", "output": way} for way in WAYS]), "--sandbox", wall, "--out", out, *flags]
    started = subprocess.Popen(
        command, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with Watch(started.pid, canary) as watch:
        said = started.communicate(timeout=120)
    assert started.returncode == 1, said
    return out.read_text(), "".join(said), watch


@pytest.mark.parametrize("isolation", ["row", "evaluator"])
def test_a_granted_value_turns_up_nowhere(wall, isolation, write, rows, tmp_path, canary):
    environment = {"CANARY": canary, "HOME_OF_THE_HOST": "visible"}
    flags = ["--env", "CANARY", "--isolation", isolation]
    records, said, watch = run(wall, write, rows, tmp_path, canary, *flags, environment=environment)
    found = {record["id"].removeprefix("row "): record for record in map(json.loads, reversed(records.splitlines()))}
    assert set(found) == set(WAYS)
    assert found["length"]["score"] == len(canary)  # it was there, inside, and nothing else of the host's was
    assert "[CANARY is hidden]" in found["print"]["stdout"]
    assert "[CANARY is hidden]" in found["raise"]["error"]["message"]
    assert "[CANARY is hidden]" in found["raise"]["error"]["traceback"]
    assert "[CANARY is hidden]" in said  # of what aggregate has raised
    for text in (records, said, json.dumps(found, ensure_ascii=False)):
        assert canary not in text
        assert canary[:-4] not in text
    assert watch.looked > 100
    assert watch.seen == []
    assert _on_disk(tmp_path, canary) == []


@pytest.mark.parametrize("way", WAYS[:-1])
def test_control_what_was_not_granted_but_set_does_come_out(way, write, rows, evalcell, canary):
    data = rows([{"id": canary, "output": way}])
    done = evalcell("run", write("clumsy.py", SOURCE), "--data", data, "--set", f"secret={canary}", "--out", "-")
    assert canary[:-8] in done.out


def test_control_the_watch_sees_a_value_in_an_environment(canary):
    with subprocess.Popen(["sleep", "60"], env={"CANARY": canary}) as process:
        with Watch(1, canary) as watch:
            until = time.monotonic() + 10
            while not watch.seen and time.monotonic() < until:
                time.sleep(0.05)
        process.kill()
    assert f"/proc/{process.pid}/environ" in watch.seen


@pytest.mark.parametrize("command", ["check", "run"])
def test_what_is_printed_while_loading_fails_is_hidden_too(command, write, rows, evalcell, canary):
    source = "import os\nprint(os.environ['CANARY'])\nraise OSError(os.environ['CANARY'])\ndef evaluate(output): pass\n"
    flags = ["--env", "CANARY", "--json"]
    done = evalcell(command, write("e.py", source), "--data", rows([{"output": 1}]), *flags, env={"CANARY": canary})
    assert done.code == 2
    assert canary not in done.out + done.err
    assert "[CANARY is hidden]" in done.out


def test_check_names_what_is_granted_and_shows_no_value(write, rows, evalcell, canary):
    source = "import os\ndef evaluate(output):\n    print(os.environ['CANARY'])\n    return 1\n"
    for flags in ([], ["--json"]):
        arguments = (write("e.py", source), "--data", rows([{"output": 1}]), "--env", "CANARY", *flags)
        done = evalcell("check", *arguments, env={"CANARY": canary})
        assert done.code == 0, done.err
        assert "CANARY" in done.out
        assert canary not in done.out + done.err


def test_nothing_that_prepares_a_run_is_told_a_granted_value(
    container_wall, engine_address, write, rows, canary, tmp_path
):
    """From an empty cache, so that everything is done that can be: compiling, resolving, installing."""
    cache = tmp_path / "cache"
    for place in (cache, cache / "wasm"):
        place.mkdir(mode=0o700)
    if image.packaged() is None:  # it takes half a minute to build
        shutil.copy(cache_path() / "wasm" / image.file_name(), cache / "wasm")
    name = f"package-{secrets.token_hex(4)}"
    evaluator = write("e.py", "import os\ndef evaluate(output):\n    return len(os.environ['CANARY'])\n")
    command = [sys.executable, "-m", "evalcell", "run", evaluator, "--data", rows([{"output": 1}]), "--json"]
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
    with served() as index:
        index.wheel(name)
        own = {"EVALCELL_CACHE_DIR": str(cache), "UV_DEFAULT_INDEX": index.address, "CANARY": canary}
        with (
            subprocess.Popen(
                [*command, "--dep", name, "--env", "CANARY"],
                env={**kept, **own},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as started,
            Watch(started.pid, canary) as watch,
        ):
            out, err = started.communicate(timeout=120)
    assert started.returncode == 0, err
    with closing(docker.DockerClient(base_url=engine_address)) as client:
        (layer,) = client.api.images(filters={"label": f"evalcell.packages={name}==1.0"})
        client.api.remove_image(layer["Id"])
    assert json.loads(out)["scores"]["e"]["mean"] == len(canary)
    for program in ("wasm.module", "uv pip compile", "uv pip install"):
        assert watch.has_seen(program), program
    assert watch.seen == []


def test_what_keeps_the_passwords_of_registries_is_told_no_granted_value(engine_address, canary, tmp_path, monkeypatch):
    """The engine's client starts such a program when it pulls a base image."""
    told, name = tmp_path / "told", f"CANARY_{secrets.token_hex(4)}"
    (tmp_path / "docker-credential-watched").write_text(f"#!/bin/sh\nenv > {told}\nexit 1\n")
    (tmp_path / "docker-credential-watched").chmod(0o755)
    (tmp_path / "config.json").write_text('{"credsStore": "watched"}')
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv(name, canary)
    for withheld in ((name,), (f"{name}_CONTROL",)):
        engine = Engine(Site(engine=engine_address, withheld=withheld))
        with pytest.raises(docker.errors.DockerException):
            engine.api.pull("localhost:1/nothing", tag="1")
        assert "PATH=" in told.read_text()
        assert (canary in told.read_text()) == (withheld != (name,))


def test_no_image_and_no_container_holds_a_granted_value(
    container_wall, engine_address, evalcell, write, rows, canary, tmp_path
):
    """Asked of the engine while rows run, and of what it has kept on disk and would hand out afterwards."""
    asset = f"asset-{secrets.token_hex(8)}.txt"  # so that its layer is made now, and can be told from others
    (tmp_path / asset).write_text(asset)
    block = f'# /// script\n# dependencies = ["unidecode==1.3.8"]\n# [tool.evalcell]\n# assets = ["{asset}"]\n# ///\n'
    source = (
        block + "import os, time\ndef evaluate(output):\n    time.sleep(0.05)\n    return len(os.environ['CANARY'])\n"
    )
    data = rows([{"output": number} for number in range(40)])
    seen: list[str] = []
    client = docker.DockerClient(base_url=engine_address)
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            for container in client.api.containers(all=True):
                try:
                    inspected = json.dumps(client.api.inspect_container(container["Id"]))
                except docker.errors.APIError:
                    continue
                seen.append(inspected)
            stop.wait(0.1)

    watching = threading.Thread(target=look)
    watching.start()
    try:
        done = evalcell(
            "run", write("e.py", source), "--data", data, "--env", "CANARY", "--json", env={"CANARY": canary}
        )
    finally:
        stop.set()
        watching.join()
    assert done.code == 0, done.err
    assert done.json()["scores"]["e"]["mean"] == len(canary)
    assert seen
    assert not [text for text in seen if canary in text]
    layers = client.api.images(filters={"label": "evalcell.layer"})
    (mine,) = (layer["Id"] for layer in layers if asset in layer["Labels"].get("evalcell.assets", ""))
    assert canary not in json.dumps(client.api.inspect_image(mine)) + json.dumps(client.api.history(mine))
    assert not any(canary.encode() in piece for piece in client.api.get_image(mine))  # with the packages beneath it
    client.api.remove_image(mine)
    client.close()


def _on_disk(tmp_path: Path, canary: str) -> list[str]:
    """The files of this test, of the cache and of the data directory that hold it."""
    from evalcell.data import data_path

    found = []
    for place in (tmp_path, cache_path(), data_path()):
        for directory, _, names in os.walk(place):
            for path in (Path(directory, name) for name in names):
                with suppress(FileNotFoundError):  # other tests use the cache too, and tidy up
                    if path.is_file() and path.stat().st_size < 10**7 and canary.encode() in path.read_bytes():
                        found += [str(path)]
    return found
