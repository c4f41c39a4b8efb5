"""A runner as one might write it in an afternoon: no wall, one interpreter for all rows, results on standard output.

    python naive.py MODULE ROWS

Only the harm that it can do to this machine is bounded. It is what attacks must succeed against.
"""

import json
import resource
import sys
import traceback
from pathlib import Path
from typing import Any

_MEMORY_BYTES = 512 * 1024**2
_FILE_BYTES = 64 * 1024**2
_DESCRIPTORS = 256


def say(text: str) -> bool:
    """Reports to the parent, which believes the first line about a row."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
    return True


def run_row(evaluate: Any, number: int, arguments: dict[str, Any]) -> None:
    """Calls `evaluate` and reports. What looks like trouble with the machine is taken for trouble with the machine."""
    say(json.dumps({"row": number, "started": True}))
    try:
        value = evaluate(**arguments)
        text = json.dumps({"row": number, "result": value, "in_range": in_range(value)}, default=str)
    except Exception as error:  # noqa: BLE001 - whatever it is, the next row is run
        kind = "infrastructure" if isinstance(error, OSError) else "raised"
        what = {"kind": kind, "type": type(error).__name__, "text": str(error), "traceback": traceback.format_exc(-50)}
        text = json.dumps({"row": number, "error": what})
    say(text)


def in_range(value: Any) -> bool | None:
    """Whether a number lies between 0 and 1, by its own word."""
    return 0 <= value <= 1 if isinstance(value, int | float) else None


def main(module: str, rows: str) -> None:
    """Runs the module over the rows. The open file of rows is there for the taking."""
    for limit, most in (
        (resource.RLIMIT_AS, _MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, _FILE_BYTES),
        (resource.RLIMIT_NOFILE, _DESCRIPTORS),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (most, most))
    namespace: dict[str, Any] = {"__name__": "evaluator", "__file__": module}
    exec(compile(Path(module).read_text(encoding="utf-8"), module, "exec"), namespace)
    with Path(rows).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            run_row(namespace["evaluate"], number, json.loads(line))


if __name__ == "__main__":
    main(*sys.argv[1:])
