"""An evaluator with packages in a plain process, behind no wall: what it costs at the least where packages are needed.

This file is both sides. `Plain` starts it as a script, which imports nothing but the standard library and what the
evaluator itself imports; packages are found in a directory that was installed for it.
"""

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

TOGETHER = 256
"""So many rows `evaluate_batch` is given at once, as the container wall does."""


class Plain(AbstractContextManager["Plain"]):
    """A process with the evaluator loaded. Leaving the context ends it."""

    def __init__(self, evaluator: Path, packages: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-s", "-S", str(Path(__file__)), str(evaluator)],
            env=_environment(packages),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, lines: Sequence[str], *, forked: bool = False) -> None:
        """Hands it rows; `answer` waits for what becomes of them. With `forked`, each row has a fork to itself."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([forked, lines]) + "\n")
        self._process.stdin.flush()

    def answer(self) -> tuple[float, list[float]]:
        """The seconds that it took from the rows' texts to their results', by its own clock, and the scores.

        Raises:
            RuntimeError: The process has ended.
        """
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"The process without a wall left with {self._process.wait()}.")
        taken, texts = json.loads(answer)
        return taken, [score_of(text) for text in texts]


def score_of(text: str | bytes) -> float:
    """The score in what an evaluator returned, a number or an object."""
    value = json.loads(text)
    return float(value["score"] if isinstance(value, dict) else value)


def _environment(packages: Path) -> dict[str, str]:
    """As in a container: the packages and nothing else beside the standard library, and one thread."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**kept, **threads, "PYTHONPATH": str(packages), "PYTHONHASHSEED": "0"}


# -- the other side --------------------------------------------------------------------------------------------------
def _serve(evaluator: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "evaluator"}
    exec(compile(evaluator.read_text(encoding="utf-8"), str(evaluator), "exec"), namespace)
    gc.freeze()  # as the container does before it forks
    score = _batched(namespace["evaluate_batch"]) if "evaluate_batch" in namespace else _each(namespace["evaluate"])
    for asked in sys.stdin:
        forked, lines = json.loads(asked)
        started = time.perf_counter()
        texts = [_in_a_fork(score, line) for line in lines] if forked else score(lines)
        print(json.dumps([time.perf_counter() - started, texts]), flush=True)


def _each(evaluate: Callable[..., Any]) -> Callable[[list[str]], list[str]]:
    return lambda lines: [json.dumps(evaluate(**json.loads(line))) for line in lines]


def _batched(evaluate_batch: Callable[[list[Any]], list[Any]]) -> Callable[[list[str]], list[str]]:
    def score(lines: list[str]) -> list[str]:
        lots = (lines[start : start + TOGETHER] for start in range(0, len(lines), TOGETHER))
        return [json.dumps(value) for lot in lots for value in evaluate_batch([json.loads(line) for line in lot])]

    return score


def _in_a_fork(score: Callable[[list[str]], list[str]], line: str) -> str:
    """A row in the state that the process was in when the module was loaded, and nothing that guards it."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, score([line])[0].encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as result:
        text = result.read()
    os.waitpid(child, 0)
    return text


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
