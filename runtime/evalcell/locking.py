"""Which exact versions of its dependencies an evaluator runs with."""

from collections.abc import Sequence

from evalcell.errors import EvaluatorError
from evalcell.evaluator import Evaluator
from evalcell_sandboxes import DependencyProblem, Progress, Sandbox
from evalcell_sandboxes.container import locking


def lock_for(evaluator: Evaluator, dependencies: Sequence[str], wall: Sandbox, progress: Progress) -> str:
    """The lock that lies beside the file, or else one that is made once and kept; empty without dependencies.

    Raises:
        EvaluatorError: The lock is stale or no lock, or the dependencies cannot be had.
        SandboxUnavailable: What resolves them is not here.
    """
    if not dependencies:
        return ""
    if evaluator.lock is None:
        return locked(dependencies, wall, progress)
    again = f"Run: evalcell lock {evaluator.filename}"
    try:
        locking.check(evaluator.lock)
    except ValueError as error:
        raise EvaluatorError(
            "dependencies", f"The lock beside {evaluator.filename} is none: {error}. {again}"
        ) from None
    made_for = locking.made_for(evaluator.lock)
    wanted = locking.wanted(dependencies, "").requirements
    if made_for is None or made_for.requirements != wanted:
        were = "nobody knows what" if made_for is None else ", ".join(made_for.requirements)
        raise EvaluatorError(
            "dependencies",
            f"The lock beside {evaluator.filename} is stale: it was made for {were}, "
            f"and now {', '.join(wanted)} is asked for. {again}",
        )
    _check_python(made_for.python, evaluator, wall)
    return evaluator.lock


def _check_python(oldest: str, evaluator: Evaluator, wall: Sandbox) -> None:
    from packaging.version import Version

    if wall.python is not None and Version(wall.python) < Version(oldest):
        raise EvaluatorError(
            "dependencies",
            f"The lock beside {evaluator.filename} is for Python {oldest} and newer, but sandbox {wall.name!r} has "
            f"{wall.python}. Use a newer base image, or make the lock here: evalcell lock {evaluator.filename}",
        )


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
