"""The parts of the benchmark. Each gives measurements and tells how it is going."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks import command, designs, peers
from benchmarks.cases import CASES
from benchmarks.designs import Design
from benchmarks.report import Measurement
from evalcell.running import cores
from evalcell_sandboxes import Isolation
from evalcell_sandboxes.caching import cache_dir, private_dir
from evalcell_sandboxes.wasm import image

EXACT, HEAVIER = CASES[:2]
PEER = "fresh_interpreter"
_FEW_ROWS = 2_000
_ONE_ROW_RUNS = 3
"""Runs in a round: each is short, and a median wants many."""


@dataclass(frozen=True)
class Bench:
    """How much is measured, where files may lie meanwhile, and whom to tell."""

    scratch: Path
    tell: Callable[[str], None]
    rounds: int = 6
    seconds: float = 1.0
    many_rows: int = 200_000
    enduring_rows: int = 1_000_000
    container_rows: int = 10_000


def rows(bench: Bench) -> list[Measurement]:
    """Rows per second of every design on every evaluator."""
    found = []
    ways = _own_designs(bench.scratch) + _peer_designs(bench.tell)
    for case in CASES:
        best = designs.best_of_rounds(ways, case, bench.rounds, bench.seconds, bench.tell)
        for name, rate in best.items():
            baseline = None if name == PEER else f"rows_per_second/{case.name}/{PEER}"
            found.append(Measurement(f"rows_per_second/{case.name}/{name}", rate, "rows/s", baseline))
    return found


def _own_designs(scratch: Path) -> list[Design]:
    """The designs that need nothing from elsewhere."""
    return [
        Design("bare_cpython", 200, designs.bare),
        Design("shared_state", 200, designs.evalcell(scratch, "--workers", "1", "--isolation", "evaluator")),
        Design("fresh_state", 50, designs.evalcell(scratch, "--workers", "1")),
    ]


def _peer_designs(tell: Callable[[str], None]) -> list[Design]:
    """A fresh interpreter for each row: after ten imports, as is usual, and with those alone that the row needs."""
    try:
        wasm = peers.fetched()
    except peers.PeerUnavailable as error:
        tell(f"Going on without {PEER}, and so without ratios to it: {error}")
        return []
    tell(f"Compiling {peers.PACKAGE} once")
    interpreter = peers.FreshInterpreter(wasm)
    return [
        Design(PEER, 2, designs.fresh_interpreter(interpreter, peers.TEN_IMPORTS)),
        Design(f"{PEER}_few_imports", 2, designs.fresh_interpreter(interpreter, "json")),
    ]


def calls(bench: Bench) -> list[Measurement]:
    """What it costs to put the state back after every row, where each row is a call of its own either way."""
    ways = [
        Design("shared_state", 200, designs.session(Isolation.EVALUATOR)),
        Design("fresh_state", 200, designs.session(Isolation.ROW)),
    ]
    found = []
    for case in CASES:
        best = designs.best_of_rounds(ways, case, bench.rounds, bench.seconds / 2, bench.tell)
        shared = f"one_row_a_call/{case.name}/shared_state"
        found.append(Measurement(shared, best["shared_state"], "rows/s"))
        found.append(Measurement(f"one_row_a_call/{case.name}/fresh_state", best["fresh_state"], "rows/s", shared))
    return found


def lanes(bench: Bench) -> list[Measurement]:
    """What a lane for every core gives over a single one, where every row starts fresh.

    Further lanes start while the first one works already, so rounds are longer than elsewhere.
    """
    ways = [
        Design("one", 50, designs.evalcell(bench.scratch, "--workers", "1")),
        Design("every_core", 50, designs.evalcell(bench.scratch, "--workers", str(cores()))),
    ]
    found = []
    for case in (EXACT, HEAVIER):
        best = designs.best_of_rounds(ways, case, bench.rounds, 4 * bench.seconds, bench.tell)
        if best["every_core"] > cores() * best["one"]:
            bench.tell(f"{cores()} lanes cannot be more than {cores()} times one: other work slowed it. Try again.")
        one = f"lanes/{case.name}/one"
        found.append(Measurement(one, best["one"], "rows/s"))
        found.append(Measurement(f"lanes/{case.name}/every_core", best["every_core"], "rows/s", one))
    return found


def start(bench: Bench) -> list[Measurement]:
    """How long the command takes for ten rows, warm and cold, against a Python that does nothing."""
    arguments = command.command(EXACT, command.write_rows(bench.scratch / "ten.jsonl", EXACT, 10))
    python, warm = [], []
    for _ in range(bench.rounds):
        python.append(command.seconds([sys.executable, "-c", "pass"], os.environ))
        warm.append(command.seconds(arguments, os.environ))
    bench.tell(f"Warm start: {min(warm):.2f} s")
    return [
        Measurement("start/python", min(python), "s"),
        Measurement("start/warm", min(warm), "s", "start/python"),
        *_one_row(bench),
        *_cold_start(bench, arguments),
    ]


def _one_row(bench: Bench) -> list[Measurement]:
    """The least that the command takes, with everything cached. Python's bytecode too, which an install leaves behind
    and which an environment may keep it from writing. The first run fills the cache and does not count.
    """
    data = command.write_rows(bench.scratch / "one.jsonl", EXACT, 1)
    arguments = [sys.executable, "-m", "evalcell", "run", str(EXACT.path), "--data", str(data)]
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(bench.scratch / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    _, *taken = [command.seconds(arguments, environment) for _ in range(1 + _ONE_ROW_RUNS * bench.rounds)]
    bench.tell(f"One row: {median(taken):.2f} s, at best {min(taken):.2f} s")
    return [
        Measurement("start/one_row/median", median(taken), "s", "start/python"),
        Measurement("start/one_row/best", min(taken), "s", "start/python"),
    ]


def _cold_start(bench: Bench, arguments: list[str]) -> list[Measurement]:
    """With a cache as it is after an install: the guest image is there, nothing is compiled."""
    cache = private_dir(bench.scratch / "cold")
    if image.packaged() is None:
        built = cache_dir() / "wasm" / image.file_name()
        if not built.exists():
            bench.tell(f"Going on without the cold start: {built.name} is not in the cache.")
            return []
        shutil.copy(built, private_dir(cache / "wasm"))
    seconds = command.seconds(arguments, os.environ | {"EVALCELL_CACHE_DIR": str(cache)})
    bench.tell(f"Cold start: {seconds:.2f} s")
    return [Measurement("start/cold", seconds, "s", "start/warm")]


def memory(bench: Bench) -> list[Measurement]:
    """Peak memory on many rows against few: a run that keeps nothing needs the same for both."""
    if sys.platform != "linux":
        bench.tell("Going on without peak memory: it is read from /proc, which only Linux has.")
        return []
    few, many = (_peaks(bench, count) for count in (_FEW_ROWS, bench.many_rows))
    return [*_peak("command", few.parent, many.parent, bench), *_peak("lane", few.lane, many.lane, bench)]


def _peaks(bench: Bench, count: int) -> command.Peaks:
    data = command.write_rows(bench.scratch / "many.jsonl", EXACT, count)
    found = command.peaks(command.command(EXACT, data, "--isolation", "evaluator"))
    bench.tell(f"Peak memory on {count:,} rows: command {found.parent:.0f} MB, lane {found.lane:.0f} MB")
    return found


def _peak(process: str, few: float, many: float, bench: Bench) -> Sequence[Measurement]:
    baseline = f"peak_memory/{process}/{_FEW_ROWS}_rows"
    return [
        Measurement(baseline, few, "MB"),
        Measurement(f"peak_memory/{process}/{bench.many_rows}_rows", many, "MB", baseline),
    ]


def endurance(bench: Bench) -> list[Measurement]:
    """A million rows, each from a fresh state: what the lanes hold at the end against what they held early on."""
    if sys.platform != "linux":
        bench.tell("Going on without endurance: it is read from /proc, which only Linux has.")
        return []
    data = command.write_rows(bench.scratch / "million.jsonl", EXACT, bench.enduring_rows)
    bench.tell(f"{bench.enduring_rows:,} rows with fresh state")
    held = command.held(command.command(EXACT, data))
    early, late = held.looks[len(held.looks) // 4], held.looks[-1]
    bench.tell(f"From {early} to {late} in {held.seconds:.0f} s")
    return [
        Measurement("endurance/rows_per_second", bench.enduring_rows / held.seconds, "rows/s"),
        Measurement("endurance/lane_memory/early", early.memory, "MB"),
        Measurement("endurance/lane_memory/late", late.memory, "MB", "endurance/lane_memory/early"),
        Measurement("endurance/lane_mappings/early", early.mappings, "mappings"),
        Measurement("endurance/lane_mappings/late", late.mappings, "mappings", "endurance/lane_mappings/early"),
    ]


PARTS: dict[str, Callable[[Bench], list[Measurement]]] = {
    "rows": rows,
    "calls": calls,
    "lanes": lanes,
    "start": start,
    "memory": memory,
    "endurance": endurance,
}
