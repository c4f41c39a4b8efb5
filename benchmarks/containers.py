"""Evaluators with packages, in containers: from nothing cached to the first score, all rows, and row after row."""

import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks import command, designs
from benchmarks.cases import EXACT, SIMILARITY, SIMILARITY_BATCH, Case
from benchmarks.designs import Design, Measured, Run
from benchmarks.engines import NoEngine, own_ground
from benchmarks.parts import Bench
from benchmarks.plain import Plain, score_of
from benchmarks.report import Bar, Measurement
from evalcell_sandboxes import (
    Confinement,
    Isolation,
    Outcome,
    Program,
    Returned,
    SandboxUnavailable,
    Session,
    sandbox,
    silent,
)
from evalcell_sandboxes.container.installing import install, platform_of

BARE = "bare_cpython"
FORK = "bare_fork"
BARS = (
    Bar("containers/first_score/nothing_cached", 30),
    Bar("containers/all_rows/hashing_similarity/shared_state", 12),
    Bar("containers/all_rows/hashing_similarity/fresh_state", 75),
    Bar("containers/batched/hashing_similarity/shared_state", 3_500),
    Bar("containers/batched/hashing_similarity/fresh_state", 90),
)
"""What was promised on a machine with two cores; rows/s are those of one."""
_ISOLATIONS = {"shared_state": Isolation.EVALUATOR, "fresh_state": Isolation.ROW}
_LANES = 2
_UNAVAILABLE = 4
"""What the command ends with where the sandbox is unavailable, as without a network for packages."""
_FEWER = 10
"""Fresh state runs so many times fewer rows than shared state, and its time is scaled."""


class Timed(NamedTuple):
    """The command from its start: the seconds until the first score, the middle one, the last one and the end."""

    first: float
    middle: float
    last: float
    end: float
    scores: list[float]

    def scaled(self, count: int) -> float:
        """The seconds until the end, had there been so many rows: each more takes what one of the second half took."""
        rows = len(self.scores)
        return self.end + (count - rows) * (self.last - self.middle) / (rows - rows // 2)


def containers(bench: Bench) -> list[Measurement]:
    """Everything about containers, against bare CPython with the same packages."""
    if sys.platform != "linux":
        bench.tell("Going on without containers: bare CPython with the same packages is installed on Linux only.")
        return []
    try:
        with own_ground(bench.scratch, bench.tell):
            cold = _cold(bench)
            packages = _installed(bench.scratch / "packages")
            return [*_whole_runs(bench, packages, cold), *_warm(bench, packages)]
    except (NoEngine, SandboxUnavailable) as reason:
        bench.tell(f"Going on without containers: {reason}")
        return []


def _cold(bench: Bench) -> Timed:
    bench.tell("First score with nothing cached: scikit-learn is resolved, downloaded and compiled")
    cold = _timed(bench.scratch, SIMILARITY, len(SIMILARITY.rows()), Isolation.EVALUATOR)
    bench.tell(f"First score with nothing cached: {cold.first:.1f} s")
    return cold


def _lock(case: Case) -> str:
    """What the command has locked for it."""
    return "" if case is EXACT else sandbox("container").lock(["scikit-learn"], silent)


def _installed(target: Path) -> Path:
    """The packages as they are in the layer, for a CPython outside."""
    own = platform_of(platform.machine(), " ".join(platform.libc_ver()))
    install(_lock(SIMILARITY), target, python=platform.python_version(), platform=own, progress=silent)
    return target


# -- whole runs of the command ---------------------------------------------------------------------------------------
def _whole_runs(bench: Bench, packages: Path, cold: Timed) -> list[Measurement]:
    """Each once: they are long."""
    found, first = [], {BARE: _bare_first(packages), "nothing_cached": cold.first}
    for case in (SIMILARITY, SIMILARITY_BATCH, EXACT):
        # A cosine that rounding has put above 1 is moved onto the range that the file declares.
        expected = [min(score, 1.0) for score in _scores(case, packages)]
        seconds = {BARE: _bare_seconds(case, packages, bench.container_rows)}
        runs = {name: _timed(bench.scratch, case, _count(name, bench), _ISOLATIONS[name]) for name in _states(case)}
        for name, timed in runs.items():
            designs.agree(name, case, timed.scores, expected)
            seconds[name] = timed.scaled(bench.container_rows)
        if case is SIMILARITY:
            designs.agree("nothing_cached", case, cold.scores, expected)
            first["layer_cached"] = min(timed.first for timed in runs.values())
        told = ", ".join(f"{name} {taken:.1f} s" for name, taken in seconds.items())
        bench.tell(f"{case.title}, {bench.container_rows:,} rows on {_LANES} lanes: {told}")
        found += _seconds(f"containers/all_rows/{case.name}", seconds)
    return [*_seconds("containers/first_score", first), *found]


def _states(case: Case) -> Sequence[str]:
    """Where every row starts fresh, `evaluate_batch` is not called."""
    return ["shared_state"] if case is SIMILARITY_BATCH else list(_ISOLATIONS)


def _count(state: str, bench: Bench) -> int:
    return bench.container_rows // (_FEWER if state == "fresh_state" else 1)


def _timed(scratch: Path, case: Case, count: int, isolation: Isolation) -> Timed:
    """Runs the command and looks at the clock whenever a record comes.

    Raises:
        NoEngine: The command says that containers, or packages for them, cannot be had.
        RuntimeError: It failed otherwise.
    """
    data = command.write_rows(scratch / "rows.jsonl", case, count)
    arguments = [sys.executable, "-m", "evalcell", "run", str(case.path), "--data", str(data), "--out", "-"]
    arguments += ["--sandbox", "container", "--workers", str(_LANES), "--isolation", str(isolation)]
    said, records, moments = scratch / "said.txt", [], []
    started = time.perf_counter()
    with said.open("w") as errors, subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=errors) as process:
        assert process.stdout is not None
        for record in process.stdout:
            moments.append(time.perf_counter() - started)
            records.append(record)
    end = time.perf_counter() - started
    if process.returncode == _UNAVAILABLE:
        raise NoEngine(said.read_text().strip())
    if process.returncode != 0:
        raise RuntimeError(f"evalcell left with {process.returncode}:\n{said.read_text()}")
    return Timed(moments[0], moments[count // 2 - 1], moments[-1], end, [score_of(record) for record in records])


def _bare_seconds(case: Case, packages: Path, count: int) -> float:
    """The same rows in as many plain processes as there are lanes, from their start to their last score."""
    lines = list(case.lines(count))
    started = time.perf_counter()
    with ExitStack() as stack:
        processes = [stack.enter_context(Plain(case.path, packages)) for _ in range(_LANES)]
        for number, process in enumerate(processes):
            process.ask(lines[number::_LANES])
        for process in processes:
            process.answer()
        return time.perf_counter() - started


def _bare_first(packages: Path) -> float:
    """A plain process from its start to its first score, with the packages and their bytecode there."""
    _scores(SIMILARITY, packages)  # compiles
    started = time.perf_counter()
    with Plain(SIMILARITY.path, packages) as process:
        process.ask(list(SIMILARITY.lines(1)))
        process.answer()
        return time.perf_counter() - started


def _scores(case: Case, packages: Path) -> list[float]:
    """What every design must give for the distinct rows."""
    with Plain(case.path, packages) as process:
        process.ask(list(case.lines(len(case.rows()))))
        return process.answer()[1]


# -- one lane that has started ---------------------------------------------------------------------------------------
def _warm(bench: Bench, packages: Path) -> list[Measurement]:
    found = []
    for case in (SIMILARITY, SIMILARITY_BATCH, EXACT):
        with ExitStack() as stack:
            ways = _ways(case, packages, stack)
            expected = _scores(case, packages)
            best = designs.best_of_rounds(ways, case, bench.rounds, bench.seconds / 2, bench.tell, expected)
        found += named(case.name, best)
    return found


def _ways(case: Case, packages: Path, stack: ExitStack) -> list[Design]:
    """Everything is started here, and stays open for all rounds."""
    sessions = {state: stack.enter_context(_opened(case, _ISOLATIONS[state])) for state in _states(case)}
    plain, forked = (stack.enter_context(Plain(case.path, packages)) for _ in range(2))
    batched = [Design(f"batched/{state}", 50, _together(session)) for state, session in sessions.items()]
    if case is SIMILARITY_BATCH:
        return [Design(f"batched/{BARE}", 200, _bare(plain)), *batched]
    one_by_one = [Design(f"row_by_row/{state}", 20, _one_by_one(session)) for state, session in sessions.items()]
    bare = [
        Design(f"row_by_row/{BARE}", 200, _bare(plain)),
        Design(f"row_by_row/{FORK}", 20, _bare(forked, forked=True)),
    ]
    return [*bare, *one_by_one, *batched]


def named(evaluator: str, best: Mapping[str, float]) -> list[Measurement]:
    """The measurements of an evaluator's designs, which are called by how rows are passed and from which state."""
    names = {design: "containers/{0}/{2}/{1}".format(*design.split("/"), evaluator) for design in best}
    baseline = next(name for name in names.values() if name.endswith(f"/{BARE}"))
    return [
        Measurement(name, best[design], "rows/s", None if name == baseline else baseline)
        for design, name in names.items()
    ]


def _opened(case: Case, isolation: Isolation) -> AbstractContextManager[Session]:
    program = Program(case.path.read_text(encoding="utf-8"), case.path.name, lock=_lock(case))
    return sandbox("container").open(program, Confinement(isolation=isolation))


def _bare(plain: Plain, *, forked: bool = False) -> Run:
    def run(case: Case, count: int) -> Measured:
        plain.ask(list(case.lines(count)), forked=forked)
        seconds, scores = plain.answer()
        return Measured(count / seconds, scores)

    return run


def _one_by_one(session: Session) -> Run:
    """One row in each call."""
    return _timed_session(session, lambda lines: [[line] for line in lines])


def _together(session: Session) -> Run:
    """All rows in one call: how many of them travel together is the wall's business."""
    return _timed_session(session, lambda lines: [lines])


def _timed_session(session: Session, calls: Callable[[list[bytes]], list[list[bytes]]]) -> Run:
    def run(case: Case, count: int) -> Measured:
        rows = calls([line.encode() for line in case.lines(count)])
        started = time.perf_counter()
        outcomes = [outcome for some in rows for outcome in session.run(some)]
        seconds = time.perf_counter() - started
        return Measured(count / seconds, [_score(outcome) for outcome in outcomes])

    return run


def _score(outcome: Outcome) -> float:
    assert isinstance(outcome, Returned), outcome
    return score_of(outcome.value)


def _seconds(group: str, values: Mapping[str, float]) -> list[Measurement]:
    """Seconds to be read against bare CPython's."""
    return [
        Measurement(f"{group}/{name}", value, "s", None if name == BARE else f"{group}/{BARE}")
        for name, value in values.items()
    ]
