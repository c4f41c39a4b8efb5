"""What stops a run before or between rows.

    EvalcellError
    ├── UsageError         a flag, a path or a setting that makes no sense
    │   ├── DatasetError   rows that cannot be read
    │   └── OutputError    records that cannot be written
    ├── OutputClosed       nobody reads the records any more
    └── EvaluatorError     a file that cannot be run: its syntax, signature, imports, metadata or its module's code

A row that fails is none of these: it is a record. A sandbox that is missing or broken raises `SandboxError`.
"""

from difflib import get_close_matches
from pathlib import Path


class EvalcellError(Exception):
    """Ends the run with a message for the person who started it."""


class UsageError(EvalcellError):
    """The command makes no sense; the message says what to write instead."""


class DatasetError(UsageError):
    """The rows cannot be read."""


class OutputError(UsageError):
    """The records cannot be written."""


class OutputClosed(EvalcellError):
    """Whoever read the records has gone, as `head` does when it has seen enough."""


class EvaluatorError(EvalcellError):
    """The file cannot be run, whatever the rows are."""

    def __init__(self, kind: str, message: str, *, traceback: str = "", stdout: str = "", stderr: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.traceback = traceback
        self.stdout = stdout
        self.stderr = stderr


def malformed(why: str) -> DatasetError:
    """For whoever has asked to stop at the first row that is none."""
    return DatasetError(
        f"The dataset is malformed: {why}. Mend it, or leave out --strict to count such rows as failed."
    )


def did_you_mean_file(path: Path) -> str:
    """The same for a file that is not there, among those that are beside it."""
    try:
        beside = sorted(other.name for other in path.parent.iterdir())
    except OSError:
        return ""
    return did_you_mean(path.name, beside)


def did_you_mean(name: str, known: "list[str] | tuple[str, ...]") -> str:
    """` Did you mean 'x'?` where one of the known names is close, else nothing."""
    close = get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
