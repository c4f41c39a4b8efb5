"""What a person sees while a command works and when it is done. Progress goes to stderr, results to stdout."""

import sys
from contextlib import AbstractContextManager
from functools import cached_property
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING

from evalcell.cli.text import printable
from evalcell.runs import RunProgress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class Screen(AbstractContextManager["Screen"]):
    """A live line of progress, warnings above it, and a table at the end.

    rich is slow to import. It is imported where it is used, which is while the sandbox starts.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._live_wanted = not quiet and sys.stderr.isatty()
        self._task: TaskID | None = None
        self._step = ""

    def get_ready(self) -> None:
        """Imports what is sure to be needed in the end. For when there is nothing else to do but wait."""
        if not self._quiet:
            import_module("evalcell.cli.report")
        if self._live_wanted:
            import_module("rich.progress")

    @cached_property
    def _err(self) -> "Console":
        from rich.console import Console

        return Console(stderr=True, quiet=self._quiet, highlight=False, emoji=False, soft_wrap=True)

    @cached_property
    def _live(self) -> "Progress":
        from rich import progress

        return progress.Progress(
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=30),
            progress.TextColumn("{task.fields[counts]}"),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=self._err,
            transient=True,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        if self._task is not None:
            self._live.stop()

    def progress(self, step: str, fraction: float | None = None) -> None:
        """Slow work before the rows, such as compiling. Said once in plain text where there is no terminal."""
        if not self._live_wanted and step != self._step:
            self._err.print(f"{step} ...", markup=False)
        self._step = step
        self._new_task(step, None)
        if fraction is not None:
            self._update(completed=fraction, total=1.0)

    def start_rows(self) -> None:
        """Shows rows from here on."""
        self._new_task("Scoring", None)

    def advance(self, progress: RunProgress) -> None:
        failed = f", [red]{progress.failed:,} failed[/red]" if progress.failed else ""
        counts = f"{progress.rows:,} rows{failed}"
        if progress.fraction is None:
            self._update(counts=counts)
        else:
            self._update(counts=counts, total=1.0, completed=progress.fraction)

    def warn(self, message: str) -> None:
        from rich.markup import escape

        self._err.print("[yellow]warning:[/yellow]", escape(printable(message)))

    def _new_task(self, description: str, total: float | None) -> None:
        if not self._live_wanted:
            return
        if self._task is not None:
            self._live.remove_task(self._task)
        self._task = self._live.add_task(description, total=total, counts="")
        self._live.start()

    def _update(self, **fields: object) -> None:
        if self._task is not None:
            self._live.update(self._task, **fields)  # type: ignore[arg-type]
