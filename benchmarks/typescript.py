"""TypeScript in Deno: rows per second and start, against the same evaluators in Python in WebAssembly."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

from benchmarks import command, designs
from benchmarks.cases import CASES, EXACT, Case
from benchmarks.designs import Design, Measured, Run
from benchmarks.parts import Bench
from benchmarks.report import Bar, Measurement
from evalcell_sandboxes import Confinement, Isolation, Language, Returned, sandbox
from evalcell_sandboxes.deno.process import ENVIRONMENT, program

BARS = (
    Bar("typescript/one_core/exact_match/deno_shared_state", 30_000),
    Bar("typescript/one_core/exact_match/deno_fresh_state", 1_500),
    Bar("typescript/start/beyond_python", 0.4),
)
"""What was promised; rows/s are those of one core, on which both sides of the wall run."""
_TWINS = ("exact_match", "json_distance", "token_cosine")
"""The evaluators that are there in both languages, with the same scores. `difflib` has no counterpart."""
_STATES = {"shared_state": Isolation.EVALUATOR, "fresh_state": Isolation.ROW}
_ROWS_A_CALL = 256
_CONTEXTS = Path(__file__).with_name("contexts.js")
_BARE = """(text) => {
  const { output, reference } = JSON.parse(text);
  return JSON.stringify(output === reference);
}"""
"""Exact match as a script, for contexts with nothing around them."""
_WALLS = {"wasm": Language.PYTHON, "deno": Language.TYPESCRIPT}


def typescript(bench: Bench) -> list[Measurement]:
    """Everything about TypeScript."""
    if reason := sandbox("deno").unavailable_reason():
        bench.tell(f"Going on without TypeScript: {reason}")
        return []
    return [*_one_worker(bench), *_one_core(bench), *_start(bench)]


def _one_worker(bench: Bench) -> list[Measurement]:
    """The command with one worker: what a user sees."""
    flags = {name: ("--workers", "1", "--isolation", str(isolation)) for name, isolation in _STATES.items()}
    found = []
    for case in (case for case in CASES if case.name in _TWINS):
        ways = [
            Design(f"{wall}_{state}", 50, _in(language, designs.evalcell(bench.scratch, *flags[state])))
            for state in _STATES
            for wall, language in _WALLS.items()
        ]
        best = designs.best_of_rounds(ways, case, bench.rounds, bench.seconds, bench.tell)
        found += _against_wasm(f"typescript/rows_per_second/{case.name}", best)
    return found


def _one_core(bench: Bench) -> list[Measurement]:
    """A session in this process, with many rows a call, where both sides of the wall share one core."""
    ways = [
        Design(f"{wall}_{state}", 50, _in(language, _session(wall, isolation)))
        for state, isolation in _STATES.items()
        for wall, language in _WALLS.items()
    ]
    with _on_one_core():
        best = designs.best_of_rounds(
            [*ways, Design("bare_contexts", 50, _bare_contexts)], EXACT, bench.rounds, bench.seconds, bench.tell
        )
    group = f"typescript/one_core/{EXACT.name}"
    bare = Measurement(f"{group}/bare_contexts", best["bare_contexts"], "rows/s")
    *found, fresh = _against_wasm(group, best)
    return [*found, bare, replace(fresh, baseline=bare.name)]


def _bare_contexts(case: Case, count: int) -> Measured:
    """Deno with a fresh context for each row and nothing else."""
    done = subprocess.run(
        [program(), "run", "--no-lock", "--no-config", str(_CONTEXTS)],
        input=json.dumps([_BARE, list(case.lines(count))]),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, texts = json.loads(done.stdout)
    return Measured(count / seconds, [float(json.loads(text)) for text in texts])


def _against_wasm(group: str, best: Mapping[str, float]) -> list[Measurement]:
    found = []
    for state in _STATES:
        wasm = f"{group}/wasm_{state}"
        found.append(Measurement(wasm, best[f"wasm_{state}"], "rows/s"))
        found.append(Measurement(f"{group}/deno_{state}", best[f"deno_{state}"], "rows/s", wasm))
    return found


def _in(language: Language, run: Run) -> Run:
    """The same with the evaluator in that language."""
    return lambda case, count: run(replace(case, language=language), count)


def _session(wall: str, isolation: Isolation) -> Run:
    def run(case: Case, count: int) -> Measured:
        with sandbox(wall).open(case.program, Confinement(isolation=isolation)) as opened:

            def score(lines: list[str]) -> list[str]:
                outcomes = list(opened.run([line.encode() for line in lines]))
                assert all(isinstance(outcome, Returned) for outcome in outcomes), outcomes
                return [outcome.value.decode() for outcome in outcomes if isinstance(outcome, Returned)]

            return designs.timed_together(score, case, count, _ROWS_A_CALL)

    return run


@contextmanager
def _on_one_core() -> Iterator[None]:
    """Keeps this process, and those that it starts, to one core where the system can."""
    if sys.platform != "linux":
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(islice(sorted(before), 1)))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _start(bench: Bench) -> list[Measurement]:
    """`evalcell run` on one row with everything cached, less what a Python that does nothing takes."""
    case = replace(EXACT, language=Language.TYPESCRIPT)
    data = command.write_rows(bench.scratch / "one.jsonl", case, 1)
    arguments = [sys.executable, "-m", "evalcell", "run", str(case.path), "--data", str(data)]
    command.seconds(arguments, os.environ)
    whole = min(command.seconds(arguments, os.environ) for _ in range(3 * bench.rounds))
    python = min(command.seconds([sys.executable, "-c", "pass"], os.environ) for _ in range(bench.rounds))
    bench.tell(f"One row of TypeScript: {whole:.2f} s, of which Python's own start is {python:.2f} s")
    return [
        Measurement("typescript/start/one_row", whole, "s"),
        Measurement("typescript/start/beyond_python", whole - python, "s", "typescript/start/one_row"),
    ]
