"""`evalcell run`: scores every row of a dataset."""

import json

import click

from evalcell.cli.options import Flags, dataset_options, evaluator_options
from evalcell.cli.screen import Screen
from evalcell.datasets import Format
from evalcell.runs import Order, start

_SHOWN_MALFORMED = 3

_HELP = """Score every row of a dataset with EVALUATOR, a file that defines evaluate(output, reference).

Each parameter of evaluate takes the row's field of the same name; --bind and --set say otherwise. The code runs
in a sandbox without files, network or environment, and every row starts from a fresh state. If the file defines
fit(rows), it is called with the first rows before any is scored; aggregate(results), with all scores after the last.

\b
  evalcell run examples/json_distance.py --data examples/extraction.jsonl
  evalcell run judge.py --data answers.csv --bind reference=expected --out results.jsonl
  zcat rows.jsonl.gz | evalcell run judge.py --data - --out -
"""


@click.command(help=_HELP, short_help="Score every row of a dataset.")
@evaluator_options
@dataset_options(
    required=True,
    help="The rows: JSONL, a JSON list, CSV, TSV or Parquet, plain or as .gz or .zst. '-' reads standard input.",
)
@click.option(
    "--out",
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="Write one JSON record a row here; '-' for standard output.",
)
@click.option("--rows", type=click.IntRange(min=1), metavar="N", help="Score only the first N rows.")
@click.option("--strict", is_flag=True, help="Stop at the first malformed line instead of counting it as failed.")
@click.option("--allow-failures", is_flag=True, help="Exit with 0 even when rows or aggregate failed.")
def run(
    flags: Flags,
    data: str,
    form: Format | None,
    out: str | None,
    rows: int | None,
    strict: bool,  # noqa: FBT001 - flags are booleans
    allow_failures: bool,  # noqa: FBT001
) -> int:
    """Scores every row: the screen around a run of the core."""
    order = Order(
        flags.evaluator(),
        data,
        flags.operator,
        form=form,
        rows=rows,
        out=out,
        strict=strict,
        id_path=flags.id_path,
    )
    with (
        Screen(quiet=flags.as_json) as screen,
        start(order, progress=screen.progress, warn=screen.warn, meanwhile=screen.get_ready) as running,
    ):
        screen.start_rows()
        malformed = Malformed(screen)
        for piece in running.pieces():
            malformed.report(piece.malformed)
            screen.advance(running.progress())
        malformed.report_rest()
    if flags.as_json:
        click.echo(json.dumps(running.summary(), allow_nan=False))
    else:
        from evalcell.cli.report import show

        show(running.totals, out)
    failed = running.progress().failed or running.totals.aggregates.error
    return 1 if failed and not allow_failures else 0


class Malformed:
    """Says which rows could not be read: the first few one by one, the rest as a number."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._seen = 0

    def report(self, problems: list[str]) -> None:
        for why in problems:
            self._seen += 1
            if self._seen <= _SHOWN_MALFORMED:
                self._screen.warn(f"Malformed row counted as failed: {why}")

    def report_rest(self) -> None:
        if self._seen > _SHOWN_MALFORMED:
            self._screen.warn(f"{self._seen - _SHOWN_MALFORMED:,} more malformed rows were counted as failed.")
