"""Reports an exception that user code raised, with the lines of the user's own file only."""

import json
import traceback

_NAME_CHARACTERS = 200
_MESSAGE_CHARACTERS = 4_000
_TRACEBACK_CHARACTERS = 16_000
_CHAINED = 20
_quote = json.encoder.encode_basestring_ascii


def raised(error: BaseException, filename: str) -> str:
    """The beginning of a report. Neither a hostile `__str__` nor a hostile traceback is a reason to lose the row."""
    name = type.__getattribute__(type(error), "__name__")[:_NAME_CHARACTERS]
    message = _or_else(lambda: str(error), "(the exception's text could not be made)")[:_MESSAGE_CHARACTERS]
    trace = _or_else(lambda: _traceback(error, filename), "")[-_TRACEBACK_CHARACTERS:]
    return f'{{"kind":"raised","type":{_text(name)},"message":{_text(message)},"traceback":{_text(trace)}'


def _or_else(make, otherwise: str) -> str:
    try:
        return make()
    except BaseException:
        return otherwise


def _text(value: str) -> str:
    return _quote(value.encode("utf-8", "backslashreplace").decode())


def _traceback(error: BaseException, filename: str) -> str:
    trace = traceback.TracebackException.from_exception(error, compact=True)
    _keep_user_frames(trace, filename, 0)
    return "".join(trace.format())


def _keep_user_frames(trace, filename: str, depth: int) -> None:
    if trace is None or depth > _CHAINED:
        return
    trace.stack[:] = [frame for frame in trace.stack if frame.filename == filename]
    for other in (trace.__cause__, trace.__context__, *(trace.exceptions or ())):
        _keep_user_frames(other, filename, depth + 1)
