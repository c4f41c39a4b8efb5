"""Runs anyone's evaluate(output, reference) safely on every row of an experiment.

import evalcell

with evalcell.run("judge.py", "rows.jsonl") as run:
    for record in run.results():
        print(record.id, record.score)
"""

from evalcell.version import __version__

# Nothing else is imported here: `python -m evalcell` has the current directory in front of the standard library until
# `__main__` takes it away, and an evaluator may be called `typing.py`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from evalcell.api import AsyncRun, arun, run
    from evalcell.errors import DatasetError, EvalcellError, EvaluatorError, OutputError, UsageError
    from evalcell.evaluator import Evaluator
    from evalcell.records import Error, Record
    from evalcell.runs import Run, RunProgress

__all__ = [
    "AsyncRun",
    "DatasetError",
    "Error",
    "EvalcellError",
    "Evaluator",
    "EvaluatorError",
    "OutputError",
    "Record",
    "Run",
    "RunProgress",
    "UsageError",
    "__version__",
    "arun",
    "run",
]

# Worker processes import this package too, and start faster without what only its users need.
_HOMES = {
    "api": ("AsyncRun", "arun", "run"),
    "errors": ("DatasetError", "EvalcellError", "EvaluatorError", "OutputError", "UsageError"),
    "evaluator": ("Evaluator",),
    "records": ("Error", "Record"),
    "runs": ("Run", "RunProgress"),
}


def __getattr__(name: str) -> "Any":
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'evalcell' has no attribute {name!r}")
    return getattr(__import__(f"evalcell.{home}", fromlist=[name]), name)
