"""Which exact versions of its dependencies an evaluator runs with."""

import shlex
import stat
from collections.abc import Sequence
from pathlib import Path

from evalcell.configuration import Operator
from evalcell.errors import EvaluatorError
from evalcell.evaluator import Evaluator
from evalcell_sandboxes import DependencyProblem, Progress, Sandbox
from evalcell_sandboxes.container import locking

_MOST_BYTES = 16 * 1024**2


def lock_path(path: Path) -> Path:
    """Where the lock of an evaluator's file is: beside it."""
    return path.with_suffix(".lock")


def lock_for(
    evaluator: Evaluator, dependencies: Sequence[str], operator: Operator, wall: Sandbox, progress: Progress
) -> tuple[str, str]:
    """The lock, and where it is from. That of the sandbox that is named counts most, if what it holds is enough: then
    all its evaluators share a layer. Else it is the one beside the file, or one that is made once and kept.

    Raises:
        EvaluatorError: The lock is stale or no lock, or the dependencies cannot be had.
        SandboxUnavailable: What resolves them is not here.
    """
    named = operator.named.configuration.dependencies if operator.named is not None else ()
    if named:
        shared = locked(named, wall, progress)
        others = [line for line in dependencies if line not in named]
        if not any("[" in line for line in others) and locking.unmet(shared, others, str(wall.python)) is None:
            return shared, f"of {operator.named}"  # an extra may want more than the package that it is an extra of
    if evaluator.path is None or not lock_path(evaluator.path).exists():
        return locked(dependencies, wall, progress), "kept in the cache"
    lock = _read(lock_path(evaluator.path))
    stale = _stale(lock, dependencies, str(wall.python))
    if stale is not None:
        flags = [part for said in (*named, *operator.dependencies) for part in ("--dep", said)]
        again = shlex.join(["evalcell", "lock", str(evaluator.path), *flags])
        raise EvaluatorError("dependencies", f"The lock beside {evaluator.filename} is stale: {stale}. Run: {again}")
    return lock, "beside the file"


def _read(path: Path) -> str:
    """The text of a lock. It lies beside a file whose author is not trusted, so it may be anything."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise EvaluatorError("dependencies", f"{str(path)!r} is no lock: it is a link, or no file. Remove it.")
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1).decode()
        locking.check(text)
    except OSError as error:
        raise EvaluatorError("dependencies", f"The lock {str(path)!r} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise EvaluatorError("dependencies", f"{str(path)!r} is no lock: it is no text. Remove it.") from None
    except ValueError as error:
        raise EvaluatorError("dependencies", f"{str(path)!r} is no lock. {error}") from None
    return text


def _stale(lock: str, dependencies: Sequence[str], python: str) -> str | None:
    """Why a lock does not answer what is asked for now; None where it does."""
    from packaging.version import Version

    made_for, wanted = locking.made_for(lock), locking.wanted(dependencies, python).requirements
    if made_for is None:
        return "it does not say what it was made for"
    if made_for.requirements != wanted:
        return f"it was made for {', '.join(made_for.requirements)}, and now {', '.join(wanted)} is asked for"
    if Version(python) < Version(made_for.python):
        return f"it is for Python {made_for.python} and newer, and the base image has {python}"
    missing = locking.unmet(lock, dependencies, python)
    return None if missing is None else f"it holds no version for {missing}"


def locked(dependencies: Sequence[str], wall: Sandbox, progress: Progress, *, anew: bool = False) -> str:
    """Resolves dependencies; `anew` even where that was done before.

    Raises:
        EvaluatorError: They cannot be had.
        SandboxUnavailable: What resolves them is not here.
    """
    try:
        return wall.lock(dependencies, progress, anew=anew)
    except DependencyProblem as error:
        raise EvaluatorError("dependencies", str(error)) from None
