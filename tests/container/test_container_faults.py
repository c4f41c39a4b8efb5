"""What happens around containers at the worst moments: killed, removed, without an engine, and after hundreds of runs."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
from boxed import ask, boxed, containers_of, value
from waiting import until

from evalcell import datasets, records
from evalcell_sandboxes import Confinement, Program, SandboxFault, SandboxUnavailable, Site, sandbox, silent
from evalcell_sandboxes.container import engine as engines

ECHO = "def evaluate(output):\n    return output\n"
UNHURRIED = "import time\ndef evaluate(output):\n    time.sleep(0.01)\n    return output\n"
SLOW = "import time\ndef evaluate(output):\n    time.sleep(0.05)\n    return output\n"


def running(address, *arguments, cwd):
    """The real command, on that engine, while it runs."""
    return subprocess.Popen(
        [sys.executable, "-m", "evalcell", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "DOCKER_HOST": address, "TMPDIR": str(cwd)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def empty(tmp_path):
    """A directory for what a run may leave behind."""
    directory = tmp_path / "empty"
    directory.mkdir()
    return directory


# -- no engine ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["--sandbox", "container"], ["--dep", "humanize"]], ids=["asked-for", "needed-by-a-package"]
)
def test_without_an_engine_nothing_is_run_and_least_of_all_elsewhere(evalcell, write, rows, tmp_path, arguments):
    none, out = f"unix://{tmp_path}/none.sock", tmp_path / "out.jsonl"
    done = evalcell(
        "run", write("e.py", ECHO), "--data", rows([{"output": 1}]), "--out", out, *arguments, env={"DOCKER_HOST": none}
    )
    assert done.code == 4
    assert f"no engine at {none}. Start Docker, or name another engine with DOCKER_HOST" in done.err
    assert "Traceback" not in done.err
    assert not out.exists()


def test_an_engine_that_dies_ends_the_run_at_once_and_says_so(own_engine, write, rows, empty):
    arguments = ["--data", rows([{"output": n} for n in range(2_000)]), "--out", empty / "out.jsonl"]
    run = running(own_engine.address, "run", write("e.py", SLOW), *arguments, "--sandbox", "container", cwd=empty)
    assert until(lambda: (empty / "out.jsonl.partial").exists() and (empty / "out.jsonl.partial").stat().st_size > 0)
    os.kill(own_engine.pid, signal.SIGKILL)
    killed = time.monotonic()
    _, err = run.communicate(timeout=60)
    assert time.monotonic() - killed < 20
    assert run.returncode == 4
    assert f"the engine at {own_engine.address} does not answer" in err
    assert "Traceback" not in err
    assert not (empty / "out.jsonl").exists()


# -- containers that are gone ------------------------------------------------------------------------------------------


def test_containers_killed_at_every_50th_row_lose_no_row_and_repeat_none(engine, engine_for, rows, container_wall):
    made = engine_for(UNHURRIED, lanes=2, sandbox="container")
    chance, found, killed = random.Random(7), [], 0
    with datasets.opened(str(rows([{"output": n} for n in range(1_000)]))) as dataset:
        for finished in made.engine.run(dataset):
            before = len(found)
            found += [records.decode(line) for lines in finished.rows for line in lines.splitlines()]
            if before // 50 != len(found) // 50 and (ours := containers_of(engine, made.engine.lane_pids())):
                engine.api.kill(chance.choice(ours))
                killed += 1
    assert [(record.row, record.score) for record in found] == [(n, n) for n in range(1_000)]
    assert killed >= 10, "too few were killed to prove anything"


@pytest.mark.parametrize("how", ["kill", "remove"])
def test_a_container_that_is_gone_is_a_fault_of_the_infrastructure(engine, container_wall, how):
    with boxed(container_wall, ECHO) as session:
        assert value(*ask(session, 1)) == 1
        container = engine.containers.get(session._box._name)
        container.kill() if how == "kill" else container.remove(force=True)
        started = time.monotonic()
        with pytest.raises(SandboxFault, match="container"):
            ask(session, 2)
        assert time.monotonic() - started < 5


def test_an_image_that_is_gone_is_said_to_be_gone(container_wall):
    lock = "# evalcell lock 1: python >= 3.11: gone\ngone==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n"
    with (
        pytest.raises(SandboxUnavailable, match="an image that was there is gone.*Run the command again"),
        container_wall.open(Program(source=ECHO, filename="e.py", lock=lock), Confinement()),
    ):
        pytest.fail("it was opened")


# -- what is left behind -----------------------------------------------------------------------------------------------


def test_containers_of_processes_that_are_gone_are_swept_and_no_others(own_engine, usual_base):
    engine, wall = own_engine.client, sandbox("container", Site(engine=own_engine.address))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    machine, _, _ = engines.owner().split()
    owners = {
        "gone": f"{machine} {gone.pid} 1",
        "reused": f"{machine} {os.getpid()} 1",
        "gone, and nobody knows when it began": f"{machine} {gone.pid} ",
        "ours": engines.owner(),
        "ours, and nobody knows when it began": f"{machine} {os.getpid()} ",
        "elsewhere": "another-machine 1 1",
    }
    kept = ["ours", "ours, and nobody knows when it began", "elsewhere"]
    made = {
        name: engine.containers.create(usual_base.image, ["python3"], labels={engines.OWNER: owner})
        for name, owner in owners.items()
    }
    wall.prepare(None, silent)
    there = {container["Id"] for container in engine.api.containers(all=True)}
    assert [name for name in made if made[name].id in there] == kept


@pytest.mark.soak
def test_runs_leave_nothing_behind_however_they_end(own_engine, write, rows, empty, repeats):
    evaluator, data = write("e.py", SLOW), rows([{"output": n} for n in range(60)])
    images = own_engine.images
    codes = []

    def start() -> subprocess.Popen[str]:
        arguments = ["--data", data, "--sandbox", "container", "--workers", 2]
        return running(own_engine.address, "run", evaluator, *arguments, cwd=empty)

    for attempt in repeats(5, 200):
        how = (None, signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)[attempt % 5]
        run = start()
        if how is not None:
            assert until(lambda: own_engine.containers)
            time.sleep(random.Random(attempt).random() * 0.5)
            run.send_signal(how)
        _, err = run.communicate(timeout=60)
        codes.append(run.returncode)
        assert "Traceback" not in err
        if how is signal.SIGKILL:  # it may have been creating a container, which the next run sweeps away
            with start() as after:
                after.communicate(timeout=60)
            assert after.returncode == 0
        assert until(lambda: not own_engine.containers), f"attempt {attempt}, {how}: {own_engine.containers}"
        assert own_engine.images == images
        if how is not signal.SIGKILL:
            assert list(empty.iterdir()) == []
    assert set(codes) == {0, 130, -signal.SIGKILL}
    assert until(lambda: shims_of(own_engine) == [])


def shims_of(own_engine):
    """The processes that hold containers of that engine."""
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    home = own_engine.address.removeprefix("unix://").removesuffix("/docker.sock")
    return [line for line in found if "containerd-shim" in line and home in line]
