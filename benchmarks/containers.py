"""Evaluators with packages, in containers: from nothing cached to the first score, all rows, and row after row."""

import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
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
from evalcell_sandboxes import Confinement, Isolation, Outcome, Program, Returned, Session, sandbox, silent
from evalcell_sandboxes.container.installing import install, platform_of

BARE = "bare_cpython"
BARS = (
    Bar("containers/first_score/nothing_cached", 30),
    Bar("containers/all_rows/hashing_similarity/shared_state", 12),
    Bar("containers/all_rows/hashing_similarity/fresh_state", 75),
    Bar("containers/hashing_similarity/batched/shared_state", 3_500),
    Bar("containers/hashing_similarity/batched/fresh_state", 90),
)
"""What was promised on a machine with two cores; rows/s are those of one."""
_ISOLATIONS = {"shared_state": Isolation.EVALUATOR, "fresh_state": Isolation.ROW}
_LANES = 2
_RUNS = 2
"""Of everything that is timed from a process's start. The better one counts."""
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
    except NoEngine as reason:
        bench.tell(f"Going on without containers: {reason}")
        return []


def _cold(bench: Bench) -> Timed:
    bench.tell("First score with nothing cached: scikit-learn is resolved, downloaded and compiled")
    cold = _timed(bench.scratch, SIMILARITY, bench.container_rows, Isolation.EVALUATOR)
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
    found, cached = [], []
    for case in (SIMILARITY, SIMILARITY_BATCH, EXACT):
        # A cosine that rounding has put above 1 is moved onto the range that the file declares.
        expected = [min(score, 1.0) for score in _scores(case, packages)]
        if case is SIMILARITY:
            designs.agree("nothing_cached", case, cold.scores, expected)
        taken: dict[str, list[float]] = {}
        for _ in range(_RUNS):
            taken.setdefault(BARE, []).append(_bare_seconds(case, packages, bench.container_rows))
            for name in _states(case):
                timed = _timed(bench.scratch, case, _count(name, bench), _ISOLATIONS[name])
                designs.agree(name, case, timed.scores, expected)
                taken.setdefault(name, []).append(timed.scaled(bench.container_rows))
                if case is SIMILARITY:
                    cached.append(timed.first)
        told = ", ".join(f"{name} {min(seconds):.1f} s" for name, seconds in taken.items())
        bench.tell(f"{case.title}, {bench.container_rows:,} rows on {_LANES} lanes: {told}")
        group = f"containers/all_rows/{case.name}"
        found += _against_bare(group, {name: min(seconds) for name, seconds in taken.items()}, "s")
    first = {BARE: _bare_first(packages), "nothing_cached": cold.first, "layer_cached": min(cached)}
    return [*_against_bare("containers/first_score", first, "s"), *found]


def _states(case: Case) -> Sequence[str]:
    """Where every row starts fresh, `evaluate_batch` is not called."""
    return ["shared_state"] if case is SIMILARITY_BATCH else list(_ISOLATIONS)


def _count(state: str, bench: Bench) -> int:
    return bench.container_rows // (_FEWER if state == "fresh_state" else 1)


def _timed(scratch: Path, case: Case, count: int, isolation: Isolation) -> Timed:
    """Runs the command and looks at the clock whenever a record comes.

    Raises:
        RuntimeError: The command failed.
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
    """The better of some runs with a single row."""
    taken = []
    for _ in range(_RUNS):
        started = time.perf_counter()
        with Plain(SIMILARITY.path, packages) as process:
            process.ask(list(SIMILARITY.lines(1)))
            process.answer()
            taken.append(time.perf_counter() - started)
    return min(taken)


def _scores(case: Case, packages: Path) -> list[float]:
    """What every design must give for the distinct rows. It also leaves Python's bytecode beside the packages."""
    with Plain(case.path, packages) as process:
        process.ask(list(case.lines(len(case.rows()))))
        return process.answer()[1]


# -- one lane that has started ---------------------------------------------------------------------------------------
def _warm(bench: Bench, packages: Path) -> list[Measurement]:
    found = []
    for case in (SIMILARITY, SIMILARITY_BATCH, EXACT):
        with ExitStack() as stack:
            plain = stack.enter_context(Plain(case.path, packages))
            ways = [Design(BARE, 200, _bare(plain))]
            for state in _states(case):
                session = stack.enter_context(_opened(case, _ISOLATIONS[state]))
                if case is not SIMILARITY_BATCH:
                    ways.append(Design(f"row_by_row/{state}", 20, _session(session, row_by_row=True)))
                ways.append(Design(f"batched/{state}", 50, _session(session, row_by_row=False)))
            expected = _scores(case, packages)
            best = designs.best_of_rounds(ways, case, bench.rounds, bench.seconds / 2, bench.tell, expected)
        found += _against_bare(f"containers/{case.name}", best, "rows/s")
    return found


def _opened(case: Case, isolation: Isolation) -> AbstractContextManager[Session]:
    program = Program(case.path.read_text(encoding="utf-8"), case.path.name, lock=_lock(case))
    return sandbox("container").open(program, Confinement(isolation=isolation))


def _bare(plain: Plain) -> Run:
    def run(case: Case, count: int) -> Measured:
        plain.ask(list(case.lines(count)))
        seconds, scores = plain.answer()
        return Measured(count / seconds, scores)

    return run


def _session(session: Session, *, row_by_row: bool) -> Run:
    """One row in each call, or all rows in one: how many of them travel together is then the wall's business."""

    def run(case: Case, count: int) -> Measured:
        lines = [line.encode() for line in case.lines(count)]
        calls = [[line] for line in lines] if row_by_row else [lines]
        started = time.perf_counter()
        outcomes = [outcome for call in calls for outcome in session.run(call)]
        seconds = time.perf_counter() - started
        return Measured(count / seconds, [_score(outcome) for outcome in outcomes])

    return run


def _score(outcome: Outcome) -> float:
    assert isinstance(outcome, Returned), outcome
    return score_of(outcome.value)


def _against_bare(group: str, values: Mapping[str, float], unit: str) -> list[Measurement]:
    """A measurement of each, to be read against bare CPython's."""
    baseline = f"{group}/{BARE}"
    return [
        Measurement(f"{group}/{name}", value, unit, None if name == BARE else baseline)
        for name, value in values.items()
    ]
