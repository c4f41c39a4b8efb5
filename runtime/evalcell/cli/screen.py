"""What a person sees while a command works and when it is done. Progress goes to stderr, results to stdout."""

from contextlib import AbstractContextManager
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from evalcell.summary import Summary
from evalcell.tally import Tally


class Screen(AbstractContextManager["Screen"]):
    """A live line of progress, warnings above it, and a table at the end."""

    def __init__(self, *, quiet: bool) -> None:
        self._err = Console(stderr=True, quiet=quiet)
        self._live = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._err,
            transient=True,
        )
        self._task: TaskID | None = None
        self._step = ""
        self._by_rows = False

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        self._live.stop()

    def progress(self, step: str, fraction: float | None = None) -> None:
        """Slow work before the rows, such as compiling. Said once in plain text where there is no terminal."""
        if not self._err.is_terminal and step != self._step:
            self._err.print(f"{escape(step)} ...", highlight=False)
        self._step = step
        self._new_task(step, None)
        if fraction is not None:
            self._update(completed=fraction, total=1.0)

    def start_rows(self, size: int | None, rows: int | None) -> None:
        """Shows rows from here on: against their number or the file's size, whichever is known."""
        self._by_rows = rows is not None
        self._new_task("Scoring", rows if rows is not None else size)

    def advance(self, read_bytes: int, tally: Tally) -> None:
        failed = f", [red]{tally.failed:,} failed[/red]" if tally.failed else ""
        counts = f"{tally.rows:,} rows{failed}"
        if self._by_rows:
            self._update(completed=tally.rows, counts=counts)
        else:
            self._update(advance=read_bytes, counts=counts)

    def warn(self, message: str) -> None:
        self._err.print(f"[yellow]warning:[/yellow] {escape(message)}", highlight=False, soft_wrap=True)

    def _new_task(self, description: str, total: float | None) -> None:
        if not self._err.is_terminal:
            return
        if self._task is not None:
            self._live.remove_task(self._task)
        self._task = self._live.add_task(description, total=total, counts="")
        self._live.start()

    def _update(self, **fields: object) -> None:
        if self._task is not None:
            self._live.update(self._task, **fields)  # type: ignore[arg-type]

    def show(self, summary: Summary, out: str | None) -> None:
        """The table of results; on stderr when the records themselves take stdout."""
        console = self._err if out == "-" else Console()
        console.print(_table(summary))
        for record in summary.failures:
            assert record.error is not None
            first_line = record.error.message.strip().partition("\n")[0]
            console.print(f"  row {record.row} (id {escape(str(record.id))}): [red]{record.error.kind}[/red] {escape(first_line)}", highlight=False, soft_wrap=True)
        more = summary.tally.failed - len(summary.failures)
        if more > 0 and summary.failures:
            console.print(f"  ... and {more:,} more" + ("" if out else "; --out FILE keeps a record of each"), highlight=False)
        if out not in (None, "-"):
            console.print(f"Records: {escape(str(out))}", highlight=False, soft_wrap=True)


def _table(summary: Summary) -> Table:
    tally = summary.tally
    plan = summary.plan
    table = Table(title=f"{escape(plan.evaluator)} in {plan.sandbox}", title_justify="left", caption_justify="left")
    table.caption = _caption(summary)
    judged = any(name.judged for name in tally.names.values())
    for column in ("name", "rows", "mean", "stderr", "min", "max", *(["passed"] if judged else []), "skipped", "failed"):
        table.add_column(column, justify="left" if column == "name" else "right")
    for name, scores in tally.names.items() or ():
        moments = scores.scores
        known = [moments.mean, moments.stderr, moments.least, moments.most] if moments.count else [None] * 4
        passed = [f"{scores.passed:,}/{scores.judged:,}"] if judged else []
        failed = f"{tally.failed:,}"
        table.add_row(escape(name), f"{tally.rows:,}", *map(_number, known), *passed, f"{scores.skipped:,}", failed)
    if not tally.names:
        empty = ["-"] * (4 + judged)
        table.add_row(escape(plan.evaluator), f"{tally.rows:,}", *empty, "0", f"{tally.failed:,}")
    return table


def _caption(summary: Summary) -> str:
    lines = [f"{summary.rows_per_second:,.0f} rows/s, {summary.seconds:.2f} s; version {summary.plan.version}"]
    if summary.tally.failures:
        kinds = ", ".join(f"{escape(kind)} {count:,}" for kind, count in sorted(summary.tally.failures.items()))
        lines.append(f"failures: {kinds}")
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
