"""A command starts fast: its first lane is started ahead, and neither process imports what the run does not need."""

import json
import os
import subprocess
import sys

import pytest

from evalcell.engine import spawning
from evalcell.engine.process import LaneProcess
from evalcell.engine.protocol import Describe, Described
from evalcell_sandboxes import Limits

PLAIN = "def evaluate(output):\n    return output\n"
BLOCK = '# /// script\n# requires-python = ">=3.11"\n# dependencies = []\n# ///\n'

HEAVY = {
    "asyncio",
    "docker",
    "multiprocessing",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "sklearn",
    "unittest",
}
OTHERS_WORK = {"command": {"wasmtime"}, "lane": {"click", "platformdirs", "pydantic", "rich", "tempfile"}}

WATCH = """
import os, sys
def watch(event, arguments, log=os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)):
    if event == "import":
        os.write(log, arguments[0].partition(".")[0].encode() + b"\\n")
sys.addaudithook(watch)
"""
COMMAND = """
from evalcell.engine import spawning
spawning._BOOTSTRAP = {watch!r} + spawning._BOOTSTRAP
sys.argv[0] = "evalcell"
from evalcell.cli.entry import main
main()
"""


@pytest.fixture
def imported(tmp_path):
    """Runs the command and gives the packages that it and its lane have tried to import."""

    def imported(*arguments: object) -> dict[str, set[str]]:
        logs = {process: tmp_path / f"{process}.log" for process in ("command", "lane")}
        watched = {process: WATCH.format(log=str(log)) for process, log in logs.items()}
        program = watched["command"] + COMMAND.format(watch=watched["lane"])
        subprocess.run([sys.executable, "-P", "-c", program, *map(str, arguments)], check=True, capture_output=True)
        return {process: set(log.read_text().split()) for process, log in logs.items()}

    return imported


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["table", "json"])
def test_a_run_of_plain_code_imports_nothing_heavy(imported, write, rows, flags):
    found = imported("run", write("e.py", PLAIN), "--data", rows([{"output": 1}]), *flags)
    assert {"click", "msgspec"} <= found["command"]
    assert {"msgspec", "wasmtime"} <= found["lane"]
    for process, names in found.items():
        assert names & (HEAVY | OTHERS_WORK[process]) == set(), process
    assert ("rich" in found["command"]) is (not flags)


def test_what_a_run_does_need_is_seen_to_be_imported(imported, write, rows):
    found = imported("run", write("e.py", BLOCK + PLAIN), "--data", rows([{"output": 1}]))
    assert "pydantic" in found["command"]
    assert "pydantic" not in found["lane"]


def test_the_lane_that_was_started_ahead_is_the_first_one_to_work():
    with spawning.ahead("wasm"):
        started = spawning._ahead[0].process.pid
        lane = LaneProcess()
        assert lane.pid == started
        lane.send(Describe(PLAIN, Limits(), "wasm"))
        assert isinstance(lane.answer(60), Described)
    os.kill(lane.pid, 0)  # whoever took it ends it
    lane.kill()


def test_a_lane_that_nobody_wanted_is_gone():
    with spawning.ahead("wasm"):
        started = spawning._ahead[0].process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(started, 0)


def test_a_sandbox_that_cannot_be_made_warm_is_heard_of_when_it_is_needed():
    with spawning.ahead("no such sandbox"):
        lane = LaneProcess()
        lane.send(Describe(PLAIN, Limits(), "wasm"))
        assert isinstance(lane.answer(60), Described)
        lane.kill()


def test_a_lane_keeps_bytecode_where_its_command_does(evalcell, write, rows, tmp_path):
    environment = {"PYTHONPYCACHEPREFIX": "bytecode", "PYTHONDONTWRITEBYTECODE": ""}
    done = evalcell("run", write("e.py", PLAIN), "--data", rows([{"output": 1}]), env=environment)
    assert done.code == 0, done.err
    assert list((tmp_path / "bytecode").glob("**/wasmtime/*.pyc")), "which only a lane imports"


def test_a_relative_cache_directory_is_found_from_a_lane(evalcell, write, rows, tmp_path):
    from evalcell_sandboxes.caching import cache_dir

    (tmp_path / "cache").symlink_to(cache_dir())
    done = evalcell(
        "run", write("e.py", PLAIN), "--data", rows([{"output": 1}]), "--json", env={"EVALCELL_CACHE_DIR": "cache"}
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["rows"] == 1
