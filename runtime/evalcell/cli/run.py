"""`evalcell run`: scores every row of a dataset."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path

import click

from evalcell import datasets, records, sink
from evalcell.binding import missing_in
from evalcell.cli.options import Flags, cores, evaluator_options
from evalcell.cli.screen import Screen
from evalcell.datasets import Row
from evalcell.engine.batches import Finished
from evalcell.errors import DatasetError, UsageError
from evalcell.planning import Planned
from evalcell.running import ready
from evalcell.summary import Summary

_SHOWN_FAILURES = 3


_HELP = """Score every row of a dataset with EVALUATOR, a file that defines evaluate(output, reference).

Each parameter of evaluate takes the row's field of the same name; --bind and --set say otherwise. The code runs
in a sandbox without files, network or environment, and every row starts from a fresh state.

\b
  evalcell run examples/json_distance.py --data examples/extraction.jsonl
  evalcell run judge.py --data - --bind reference=expected.text --out results.jsonl
"""


@click.command(help=_HELP, short_help="Score every row of a dataset.")
@evaluator_options
@click.option(
    "--data", required=True, metavar="FILE", help="The rows: JSONL, or a JSON list. '-' reads standard input."
)
@click.option("--out", metavar="FILE", help="Write one JSON record a row here; '-' for standard output.")
@click.option("--rows", type=click.IntRange(min=1), metavar="N", help="Score only the first N rows.")
@click.option("--strict", is_flag=True, help="Stop at the first malformed line instead of counting it as failed.")
@click.option("--allow-failures", is_flag=True, help="Exit with 0 even when rows failed.")
def run(
    flags: Flags,
    data: str,
    out: str | None,
    rows: int | None,
    strict: bool,  # noqa: FBT001 - flags are booleans
    allow_failures: bool,  # noqa: FBT001
) -> int:
    """Scores every row: the screen, both ends of the data, and the engine in between."""
    started_ns = time.time_ns()
    with ExitStack() as stack:
        screen = stack.enter_context(Screen(quiet=flags.as_json))
        # Both ends are looked at first: a typo in a path should not cost a start of the sandbox.
        sink.check(out, data)
        dataset = stack.enter_context(datasets.opened(data))
        prepared = stack.enter_context(
            ready(
                flags.evaluator,
                flags.operator,
                started_ns=started_ns,
                lanes=flags.workers or cores(),
                seed=flags.seed,
                id_path=flags.id_path,
                progress=screen.progress,
            )
        )
        dataset = _checked_against_first_row(dataset, prepared.planned, screen)
        prepared.engine.open(prepared.planned.plan)
        write = stack.enter_context(sink.opened(out))
        summary = Summary(prepared.planned.plan, prepared.planned.choice, started_ns, flags.seed)
        screen.start_rows(_size(data) if rows is None else None, rows)
        malformed = Malformed(screen, strict=strict)
        for finished in prepared.engine.run(_first(dataset, rows)):
            write(finished.rows)
            summary.add(finished.tally, _failures(finished, summary))
            malformed.report(finished.malformed)
            screen.advance(finished.read_bytes, summary.tally)
        malformed.report_rest()
    if flags.as_json:
        click.echo(summary.to_json(out))
    else:
        from evalcell.cli.report import show

        show(summary, out)
    return 1 if summary.tally.failed and not allow_failures else 0


def _checked_against_first_row(rows: Iterator[Row | None], planned: Planned, screen: Screen) -> Iterator[Row | None]:
    """Warns before anything runs when a required parameter finds nothing in the first row; rows go on as they came."""
    first = next(datasets.only_rows(rows), None)
    if first is None:
        raise UsageError("The dataset has no rows.")
    for sentence in missing_in(planned.plan.bindings, first.text):
        screen.warn(f"In the first row, {sentence} Name another path with --bind.")
    return chain([first], rows)


def _first(rows: Iterator[Row | None], count: int | None) -> Iterator[Row | None]:
    """The first rows, and all the waiting between them."""
    for row in rows:
        yield row
        count = count - 1 if count is not None and row is not None else count
        if count == 0:
            return


def _size(data: str) -> int | None:
    return None if data == "-" else Path(data).stat().st_size


def _failures(finished: Finished, summary: Summary) -> list[records.Record]:
    """The first failed records, to show why; most batches have none and are not looked into."""
    wanted = _SHOWN_FAILURES - len(summary.failures)
    if not finished.tally.failures or wanted <= 0:
        return []
    decoded = (records.decode(lines.partition(b"\n")[0]) for lines in finished.rows if b'"status":"failed"' in lines)
    return list(islice((record for record in decoded if record.status == "failed"), wanted))


class Malformed:
    """Says which rows were no JSON objects: the first few one by one, the rest as a number."""

    def __init__(self, screen: Screen, *, strict: bool) -> None:
        self._screen = screen
        self._strict = strict
        self._seen = 0

    def report(self, problems: list[str]) -> None:
        for why in problems:
            if self._strict:
                hint = "Mend it, or leave out --strict to count such rows as failed."
                raise DatasetError(f"The dataset is malformed: {why}. {hint}")
            self._seen += 1
            if self._seen <= _SHOWN_FAILURES:
                self._screen.warn(f"Malformed row counted as failed: {why}")

    def report_rest(self) -> None:
        if self._seen > _SHOWN_FAILURES:
            self._screen.warn(f"{self._seen - _SHOWN_FAILURES:,} more malformed rows were counted as failed.")
