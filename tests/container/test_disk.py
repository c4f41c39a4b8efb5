"""Layers within a budget, on a real engine, while a run is under way."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from packages import served

from evalcell_sandboxes.wasm import module

BLOCK = '# /// script\n# dependencies = ["{}"]\n# ///\n'
QUICK = "def evaluate(output):\n    return output\n"
SLOW = "import time\n\ndef evaluate(output):\n    time.sleep(0.2)\n    return output\n"


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


def layers(environment):
    listed = subprocess.run(
        [sys.executable, "-m", "evalcell", "layers", "list", "--json"], env=environment, capture_output=True, check=True
    )
    return {package.partition("==")[0] for layer in json.loads(listed.stdout) for package in layer["packages"]}


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
