"""What it means when a lane fails, or the program in it: the errors that a run ends with, in words for people."""

from evalcell.engine.protocol import Faulted, Fitted, FromLane
from evalcell.errors import EvaluatorError
from evalcell.records import Error
from evalcell_sandboxes import Crashed, Exceeded, Invalid, Outcome, Raised, SandboxFault, SandboxUnavailable


def error_of(answer: FromLane) -> SandboxUnavailable | SandboxFault:
    """The machinery failed in a lane, or it said something that nobody asked for."""
    if isinstance(answer, Faulted) and answer.unavailable is not None:
        return SandboxUnavailable(answer.unavailable, answer.message)
    return SandboxFault(
        answer.message if isinstance(answer, Faulted) else f"unexpected answer: {type(answer).__name__}"
    )


def death_over(what: str, times: int, fault: str | None) -> Error:
    """Lanes died over it, as often as they may: by themselves, or of a fault that they could still name."""
    if fault is None:
        return Error("crashed", f"the worker process died on {what}, {times} times")
    return Error("infrastructure", f"the sandbox failed on {what}, {times} times: {fault}")


def fit_error(fitted: Fitted, count: int) -> EvaluatorError:
    """`fit` failed on so many rows."""
    where = f"on the first {count:,} rows" if count != 1 else "on the first row"
    if fitted.left_out:
        where += f" ({fitted.left_out:,} of them could not be bound and were left out)"
    outcome = fitted.outcome
    match outcome:
        case Raised(exception=exception, message=message):
            said = f"{exception}: {message}" if message else exception
            return _evaluator_error("raised", f"fit failed {where}: {said}", outcome)
        case Exceeded(limit=limit, message=message):
            raise_it = (
                "" if limit == "stack" else f" Raise it with --limit {limit}=N, or fit on fewer with --fit-rows N."
            )
            return _evaluator_error(
                "exceeded", f"fit ran into the limit {limit} {where}: {message}.{raise_it}", outcome
            )
        case Crashed(message=message):
            return _evaluator_error("crashed", f"fit crashed {where}: {message}.", outcome)
        case Invalid(message=message):
            return _evaluator_error("invalid_result", f"fit failed {where}: {message}.", outcome)
    return _evaluator_error("invalid_result", f"fit failed {where}: {outcome!r:.300}", outcome)


def load_error(loaded: Outcome) -> EvaluatorError:
    """The module failed while it was executed."""
    match loaded:
        case Raised(exception=exception, message=message):
            said = f"The module failed while it was loaded: {exception}: {message}"
            return _evaluator_error("raised", said, loaded)
        case Exceeded(limit=limit, message=message):
            said = f"The module ran into the limit {limit} while it was loaded: {message}."
            return _evaluator_error("exceeded", said, loaded)
        case Crashed(message=message):
            return _evaluator_error("crashed", f"The module crashed while it was loaded: {message}.", loaded)
        case Invalid(message=message):
            return _evaluator_error("invalid_result", f"The module could not be loaded: {message}.", loaded)
    return _evaluator_error("invalid_result", f"The module could not be loaded: {loaded!r:.300}", loaded)


def _evaluator_error(kind: str, message: str, outcome: Outcome) -> EvaluatorError:
    """The error with all that helps to find its cause: the code's traceback, and what it printed until then."""
    traceback = outcome.traceback if isinstance(outcome, Raised) else ""
    return EvaluatorError(kind, message, traceback=traceback, stdout=outcome.stdout, stderr=outcome.stderr)
