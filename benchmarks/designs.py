"""The ways to run an evaluator. Each takes a row's JSON text to a score, and is timed on that and nothing else."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks import command, peers
from benchmarks.cases import Case
from benchmarks.peers import FreshInterpreter
from evalcell_sandboxes import Confinement, Isolation, Returned, sandbox


class Measured(NamedTuple):
    """How fast a design was, and the score of every row, to be compared with the other designs'."""

    rows_per_second: float
    scores: list[float]


Run = Callable[[Case, int], Measured]
"""Runs a case on so many rows."""


@dataclass(frozen=True)
class Design:
    """A way to run. `rows` is how many the first, uncounted round takes to learn how many make a second."""

    name: str
    rows: int
    run: Run


def bare(case: Case, count: int) -> Measured:
    """CPython in this process, behind no wall: what an evaluator costs at the least."""
    evaluate = case.load()

    def score(line: str) -> str:
        row = json.loads(line)
        return json.dumps(evaluate(row["output"], row["reference"]))

    return _timed(score, case, count)


def evalcell(scratch: Path, *flags: str) -> Run:
    """The command, with its records written to a file. The clock is its own: start-up and lanes are not in it."""

    def run(case: Case, count: int) -> Measured:
        data = command.write_rows(scratch / "rows.jsonl", case, count)
        records = scratch / "records.jsonl"
        said = command.summary(command.command(case, data, "--out", str(records), *flags))
        scores = [json.loads(line)["score"] for line in records.read_text(encoding="utf-8").splitlines()]
        return Measured(said["rows_per_second"], scores)

    return run


def session(isolation: Isolation) -> Run:
    """A session behind the wall, in this process and with no command around it, given one row at a time."""

    def run(case: Case, count: int) -> Measured:
        with sandbox("wasm").open(case.program, Confinement(isolation=isolation)) as opened:

            def score(line: str) -> str:
                (outcome,) = opened.run([line.encode()])
                assert isinstance(outcome, Returned), outcome
                return outcome.value.decode()

            return _timed(score, case, count)

    return run


def fresh_interpreter(interpreter: FreshInterpreter, imports: str) -> Run:
    """A new interpreter for each row, which begins with the imports."""

    def run(case: Case, count: int) -> Measured:
        program = peers.script(case.path.read_text(encoding="utf-8"), imports)
        return _timed(lambda line: interpreter(program, line), case, count)

    return run


def _timed(score: Callable[[str], str], case: Case, count: int) -> Measured:
    return timed_together(lambda lines: [score(line) for line in lines], case, count, count)


def timed_together(score: Callable[[list[str]], list[str]], case: Case, count: int, together: int) -> Measured:
    """The same for what scores many rows at a time."""
    lines = list(case.lines(count))
    started = time.perf_counter()
    texts = [text for at in range(0, count, together) for text in score(lines[at : at + together])]
    elapsed = time.perf_counter() - started
    return Measured(count / elapsed, [float(json.loads(text)) for text in texts])


def best_of_rounds(
    designs: list[Design],
    case: Case,
    rounds: int,
    seconds: float,
    tell: Callable[[str], None],
    expected: list[float] | None = None,
) -> Mapping[str, float]:
    """The best rows/s of each design, by its name.

    Rounds are interleaved, so that whatever else the machine does at a time falls on all designs. Others can only make
    a design slower, which is why the best counts. A round of a design takes about so many seconds. The scores of the
    distinct rows are those `expected`, or else what bare CPython gives in this process.

    Raises:
        RuntimeError: Two designs do not agree on a row's score.
    """
    expected = bare(case, len(case.rows())).scores if expected is None else expected
    rates = {design.name: [_checked(design, case, design.rows, expected)] for design in designs}
    for number in range(1, rounds + 1):
        for design in designs:
            known = rates[design.name]
            known.append(_checked(design, case, max(5, round(max(known) * seconds)), expected))
        latest = ", ".join(f"{name} {known[-1]:,.0f}" for name, known in rates.items())
        tell(f"{case.title}, round {number} of {rounds}: {latest} rows/s")
    return {name: max(known[1:]) for name, known in rates.items()}


def _checked(design: Design, case: Case, count: int, expected: list[float]) -> float:
    """How fast the design is, once it is clear that it did the work."""
    rows_per_second, scores = design.run(case, count)
    if len(scores) != count:
        raise RuntimeError(f"{design.name} gave {len(scores)} scores for {count} rows of {case.name}.")
    agree(design.name, case, scores, expected)
    return rows_per_second


def agree(name: str, case: Case, scores: list[float], expected: list[float]) -> None:
    """Compares a design's scores with those of the distinct rows.

    Raises:
        RuntimeError: One differs.
    """
    for number, score in enumerate(scores):
        if score != (wanted := expected[number % len(expected)]):
            raise RuntimeError(f"{name} gave {score!r} on row {number} of {case.name}, where bare gave {wanted!r}.")
