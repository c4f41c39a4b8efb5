"""What every test may use: the real sandbox, prepared once, and the real command."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from promises import lacking
from spreading import ByFileAndWall, other_engine

from evalcell import datasets, records
from evalcell.configuration import Operator
from evalcell.evaluator import Evaluator
from evalcell.running import Ready, ready
from evalcell_sandboxes import Sandbox, Site, silent
from evalcell_sandboxes import sandbox as make_sandbox

ROOT = Path(__file__).parent.parent
_OTHER_KINDS = ("podman", "runsc")
"""Of engines that tests start when they need them."""
_OTHER_WALLS = {f"{kind}_wall" for kind in _OTHER_KINDS}
_OWN_IMAGE = ROOT / "tests" / "image"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak", action="store_true", help="repeat the tests marked `soak` as often as they are meant to be"
    )


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Only asked where tests run in several processes; then `--dist loadfile` is a little more than that."""
    return ByFileAndWall(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)  # before `-m` is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        needed = _OTHER_WALLS.intersection(getattr(item, "fixturenames", ()))
        if needed or other_engine(item.nodeid) or item.path.is_relative_to(_OWN_IMAGE):
            item.add_marker(pytest.mark.elsewhere)


@pytest.fixture
def repeats(request: pytest.FixtureRequest) -> Callable[[int, int], range]:
    """How often to repeat: a little by default, as often as is meant with `--soak`."""
    return lambda few, many: range(many if request.config.getoption("--soak") else few)


@pytest.fixture(scope="session", autouse=True)
def prepared_wasm() -> None:
    """Builds and compiles the guest before the first test, so that no test's time-out has to allow for it."""
    make_sandbox("wasm").prepare(None, silent)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Finds or starts a container engine, for every process that tests start and for every process that runs tests.

    CI promises one: tests that it skips would prove nothing. One that had to be started is stopped again; its images
    stay for the next time.
    """
    if hasattr(session.config, "workerinput"):  # this process only runs what another has prepared
        return
    was_there = _test_engine("status").returncode == 0
    started = _test_engine("start")
    if started.returncode == 0:
        os.environ["DOCKER_HOST"] = started.stdout.strip()
        if not was_there:
            session.config.add_cleanup(lambda: _test_engine("stop"))
    elif os.environ.get("CI") == "true":
        pytest.exit(started.stderr.strip(), returncode=1)
    for kind in _OTHER_KINDS:
        if _test_engine("status", "--kind", kind).returncode != 0:
            session.config.add_cleanup(partial(_test_engine, "stop", "--kind", kind))


def _test_engine(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The project's own script that finds or starts an engine."""
    return subprocess.run([ROOT / "tools" / "test-engine", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="session")
def engine_address() -> str:
    """Where a container engine answers."""
    if "DOCKER_HOST" not in os.environ:
        lacking("there is no container engine here, and none can be started")
    return os.environ["DOCKER_HOST"]


@pytest.fixture(scope="session")
def container_wall(engine_address: str) -> Sandbox:
    """The real thing, with its base image at hand."""
    wall = make_sandbox("container")
    assert wall.unavailable_reason() is None
    wall.prepare(None, silent)
    return wall


@pytest.fixture(scope="session")
def podman_wall() -> Sandbox:
    """The same on Podman."""
    return _prepared(Site(engine=_own_engine("podman")))


@pytest.fixture(scope="session")
def runsc_wall() -> Sandbox:
    """The same, with gVisor beneath every container."""
    return _prepared(Site(engine=_own_engine("runsc"), runtime="runsc"))


def _prepared(site: Site) -> Sandbox:
    wall = make_sandbox("container", site)
    assert wall.unavailable_reason() is None
    wall.prepare(None, silent)
    return wall


def _own_engine(kind: str) -> str:
    """The address of an engine of that kind."""
    started = _test_engine("start", "--kind", kind)
    if started.returncode != 0:
        lacking(started.stderr.strip())
    return started.stdout.strip()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def rows(tmp_path: Path) -> Callable[[Sequence[Any]], Path]:
    """Writes rows as JSONL; strings go in as they are."""

    def rows(items: Sequence[Any]) -> Path:
        path = tmp_path / "rows.jsonl"
        path.write_text(
            "".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in items), encoding="utf-8"
        )
        return path

    return rows


@pytest.fixture
def evalcell(tmp_path: Path) -> Callable[..., SimpleNamespace]:
    """Runs the real command in an empty directory."""

    def run(
        *arguments: object, stdin: str = "", env: dict[str, str] | None = None, seconds: float = 120
    ) -> SimpleNamespace:
        done = subprocess.run(
            [sys.executable, "-m", "evalcell", *map(str, arguments)],
            cwd=tmp_path,
            input=stdin,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        return SimpleNamespace(
            code=done.returncode, out=done.stdout, err=done.stderr, json=lambda: json.loads(done.stdout)
        )

    return run


@pytest.fixture(scope="session")
def stable() -> Callable[[str], list[str]]:
    """What a command printed, line by line, without what differs from run to run: digests, times, space around cells."""

    def stable(text: str) -> list[str]:
        text = re.sub(r"\b[0-9a-f]{16}\b", "VERSION", text)
        text = re.sub(r"[\d,.]+ (s\b|rows/s)", r"N \1", text)
        return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip() and "─" not in line]

    return stable


class Scored:
    """Records of a run through a real engine, by row."""

    def __init__(self, found: list[records.Record]) -> None:
        self.records = found

    def __getitem__(self, row: int) -> records.Record:
        return next(record for record in self.records if record.row == row)

    def __len__(self) -> int:
        return len(self.records)


@pytest.fixture
def engine_for() -> Iterator[Callable[..., Ready]]:
    """Makes an engine that has loaded a source."""
    opened = []

    def engine_for(source: str, *, lanes: int = 1, **operator: Any) -> Ready:
        context = ready(
            Evaluator.from_source(source), Operator(**operator), started_ns=1_700_000_000 * 10**9, lanes=lanes
        )
        opened.append(context)
        made = context.__enter__()
        made.engine.open(made.planned.plan)
        return made

    yield engine_for
    for context in opened:
        context.__exit__(None, None, None)


@pytest.fixture
def score(engine_for: Callable[..., Ready], rows: Callable[[Sequence[Any]], Path]) -> Callable[..., Scored]:
    """Runs a source over rows in real lanes and gives the records."""

    def score(source: str, items: Sequence[Any], **options: Any) -> Scored:
        made = engine_for(source, **options)
        with datasets.opened(str(rows(items))) as dataset:
            lines = [lines for finished in made.engine.run(dataset) for lines in finished.rows]
        return Scored([records.decode(line) for text in lines for line in text.splitlines()])

    return score
