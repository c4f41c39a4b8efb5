"""`tools/test-engine` finds an engine or starts one, and cleans up after itself."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from promises import lacking

TOOL = Path(__file__).parent.parent.parent / "tools" / "test-engine"


def ask(*arguments, **environment):
    """Runs the tool, without the DOCKER_HOST of whoever runs the tests."""
    inherited = {name: value for name, value in os.environ.items() if name != "DOCKER_HOST"}
    return subprocess.run(
        [str(TOOL), *map(str, arguments)],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def home(tmp_path):
    """Where a second engine of our own can live, if one can be started here. Its path is short, as a checkout's is."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("dockerd", path="/usr/sbin:/usr/bin") is None:
        lacking("an engine of our own needs Linux, root and dockerd")
    if ask("--home", tmp_path / "none", "status").returncode == 0:
        pytest.skip("this machine has an engine, so none of our own is started")
    home = Path(tempfile.mkdtemp(prefix="engine-", dir="/tmp"))
    yield home
    ask("--home", home, "stop", "--purge")
    shutil.rmtree(home)


def pid_of(home):
    return int((home / "run" / "docker.pid").read_text())


def ended(pid):
    """Waits until a killed process is gone."""
    deadline = time.monotonic() + 10
    while (
        time.monotonic() < deadline
        and Path(f"/proc/{pid}/cmdline").exists()
        and Path(f"/proc/{pid}/cmdline").read_bytes()
    ):
        time.sleep(0.05)


def test_help_says_what_it_looks_for():
    done = ask("--help")
    assert done.returncode == 0
    assert "DOCKER_HOST" in done.stdout
    assert "status 3" in done.stdout


def test_an_engine_that_docker_host_names_must_answer(tmp_path):
    done = ask("start", DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    assert (done.returncode, done.stdout) == (3, "")
    assert "Start it, or unset DOCKER_HOST." in done.stderr


def test_an_engine_that_docker_host_names_is_taken(engine_address):
    assert ask("start", DOCKER_HOST=engine_address).stdout.strip() == engine_address


def test_without_an_engine_status_says_how_to_start_one(home):
    done = ask("--home", home, "status")
    assert (done.returncode, done.stdout) == (3, "")
    assert "Run `tools/test-engine start`." in done.stderr


def test_stopping_what_was_never_started_is_no_error(tmp_path):
    assert ask("--home", tmp_path / "none", "stop").returncode == 0
    assert not (tmp_path / "none").exists()


def test_two_starts_at_once_give_one_engine_and_stop_leaves_nothing(home):
    printed = []
    starts = [threading.Thread(target=lambda: printed.append(ask("--home", home, "start").stdout)) for _ in range(2)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert len(printed) == 2
    assert len(set(printed)) == 1
    assert printed[0].startswith("unix:///")
    pid = pid_of(home)
    assert ask("--home", home, "stop", "--purge").returncode == 0
    assert not Path(f"/proc/{pid}").exists()
    assert [path.name for path in home.iterdir()] == ["lock"]
    assert str(home) not in Path("/proc/self/mountinfo").read_text()


def test_an_engine_that_was_killed_is_started_again_though_its_number_is_another_process_now(home):
    engine_address = ask("--home", home, "start").stdout
    killed = pid_of(home)
    os.kill(killed, signal.SIGKILL)
    ended(killed)
    (home / "run" / "docker.pid").write_text(str(os.getpid()))
    assert ask("--home", home, "status").returncode == 3
    assert ask("--home", home, "start").stdout == engine_address
    assert pid_of(home) not in {killed, os.getpid()}


def test_a_long_path_does_not_keep_it_from_starting(home):
    deep = home / ("x" * 100)
    done = ask("--home", deep, "start")
    try:
        assert done.returncode == 0, done.stderr
        assert len(done.stdout) < 108
    finally:
        ask("--home", deep, "stop", "--purge")
    assert not (deep / "run").is_symlink()
