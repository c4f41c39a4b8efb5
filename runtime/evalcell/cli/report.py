"""What a person reads when a run is done."""

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evalcell.cli.text import printable, shown
from evalcell.records import Number, Record
from evalcell.summary import Summary
from evalcell.tally import Summary as NameSummary

_COLUMNS = ("rows", "mean", "stderr", "min", "max", "passed", "skipped", "failed")
_WIDTH_OF_A_FILE = 10_000
"""Nothing is cut or folded where there is no screen that it would have to fit on."""


def show(summary: Summary, out: str | None) -> None:
    """Prints the table and the first failures; on stderr when the records themselves take stdout."""
    console = Console(stderr=out == "-", highlight=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _WIDTH_OF_A_FILE
    console.print(_title(summary))
    console.print(_table(summary))
    _show_aggregates(console, summary)
    if summary.tally.failures:
        console.print(_failures(summary))
    for record in summary.failures:
        console.print(_failure(record))
    more = summary.tally.failed - len(summary.failures)
    if more > 0:
        console.print(f"  and {more:,} more" + ("" if out else "; --out FILE keeps a record of each"))
    if out not in (None, "-"):
        console.print(f"Records: {escape(str(out))}")


def _title(summary: Summary) -> str:
    plan = summary.plan
    pace = f"{summary.tally.rows:,} rows in {summary.seconds:.2f} s, {summary.rows_per_second:,.0f} rows/s"
    return f"[bold]{_safe(plan.evaluator)}[/bold] {plan.version} in {plan.sandbox}: {pace}"


def _table(summary: Summary) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("score", overflow="fold")
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    names = summary.tally.names or {summary.plan.evaluator: NameSummary()}
    for name, scores in names.items():
        table.add_row(_safe(name), *_cells(summary, scores))
    return table


def _show_aggregates(console: Console, summary: Summary) -> None:
    found = summary.aggregates
    if found.numbers:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("aggregate", overflow="fold")
        table.add_column("value", justify="right", no_wrap=True)
        for name, number in found.numbers.items():
            table.add_row(_safe(name), _number(number))
        console.print(table)
    elif found.error is not None:
        console.print(f"[red]aggregate failed:[/red] {found.error.kind}: {escape(shown(found.error.message))}")
        if found.error.traceback:
            console.print(escape(printable(found.error.traceback.rstrip(), lines=True)))
        for name, text in (("stdout", found.stdout), ("stderr", found.stderr)):
            if text:
                console.print(f"{name}: {escape(shown(text))}")
    elif summary.plan.aggregates:
        called = any(scores.scored for scores in summary.tally.names.values())
        console.print("aggregate returned no numbers." if called else "aggregate was not called: no row has a score.")


def _number(number: Number) -> str:
    return "-" if number is None else f"{number:,}" if isinstance(number, int) else f"{number:.6g}"


def _cells(summary: Summary, scores: NameSummary) -> list[str]:
    moments = scores.scores
    numbers = [moments.mean, moments.stderr, moments.least, moments.most] if moments.count else [None] * 4
    passed = f"{scores.passed:,}/{scores.judged:,}" if scores.judged else "-"
    cells = [f"{summary.tally.rows:,}", *("-" if number is None else f"{number:.4g}" for number in numbers)]
    return [*cells, passed, f"{scores.skipped:,}", f"{summary.tally.failed:,}"]


def _failures(summary: Summary) -> str:
    kinds = ", ".join(f"{escape(kind)} {count:,}" for kind, count in sorted(summary.tally.failures.items()))
    return f"[red]Failed rows:[/red] {kinds}"


def _failure(record: Record) -> str:
    assert record.error is not None
    return f"  row {record.row} (id {_safe(str(record.id))}) {record.error.kind}: {escape(shown(record.error.message))}"


def _safe(text: str) -> str:
    return escape(printable(text))
