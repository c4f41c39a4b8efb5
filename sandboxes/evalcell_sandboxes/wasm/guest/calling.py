"""Loads the evaluator's module and calls `evaluate`, turning all that may happen into one JSON report."""

import _random
import base64
import builtins
import inspect
import json
import linecache
import marshal
import random
import sys
import traceback
import types

import capture
import waiting

_MESSAGE_CHARACTERS = 4_000
_TRACEBACK_CHARACTERS = 16_000
_DEPTH = 64
_LISTS = (list, tuple)
_CONTAINERS = (dict, list, tuple)
# User code may patch any of these between two rows that share state; the report is still made with the originals.
_quote = json.encoder.encode_basestring_ascii
# What `json.loads` and `json.dumps` come down to, without what they build anew on every call. Cycles need no markers:
# a value is encoded only after `_too_deep` has found it shallow.
_scan = json.JSONDecoder().scan_once
_encode = json.encoder.c_make_encoder(None, json.JSONEncoder().default, _quote, None, ": ", ", ", False, False, False)
_inst = random._inst  # what `random.random()` and its siblings draw from
_reseed = _random.Random.seed


def _loads(text: str):
    return _scan(text, 0)[0]


class Loaded:
    """The module after it was executed, with what a call needs to know."""

    def __init__(self, source: str, settings: dict) -> None:
        self.filename = settings["filename"]
        self.result_bytes = settings["result_bytes"]
        self.streams = capture.Streams(settings["stdout_bytes"], settings["stderr_bytes"])
        self.source = source
        self.evaluate = None
        self.positional = ()
        self.code = settings["code"]


_loaded: Loaded = None


def load(source: str, settings: str) -> str:
    """Executes the module. Reports its compiled code, which spares the next instance the compiling, or how it failed."""
    global _loaded
    options = _loads(settings)
    _loaded = Loaded(source, options)
    waiting.install()
    random.seed = _inst.seed
    _reseed(_inst, options["seed"])
    return _report(_load)


def run(arguments: str, seed: int) -> str:
    """Calls `evaluate` with one row's arguments and reports what it returned or how it failed."""
    _reseed(_inst, seed)
    _inst.gauss_next = None
    return _report(_evaluate, arguments)


def hook(name: str, argument: str) -> str:
    """Calls `fit` or `aggregate` with the one decoded argument and reports what it returned."""
    return _report(_call_hook, name, argument)


def rehearse() -> None:
    """Runs every common path once while the image is built, and forgets it.

    CPython rewrites a function's bytecode as it warms up. What is warm in the image need not be rewritten, and its
    pages copied, by every instance.
    """
    global _loaded
    settings = {"filename": "rehearsal.py", "seed": 0, "code": ""}
    limits = dict.fromkeys(("result_bytes", "stdout_bytes", "stderr_bytes"), 10_000)
    for _ in range(20):
        report = _loads(load(_REHEARSAL, json.dumps(settings | limits)))
        settings["code"] = report["value"]
        for output in ("same", "other", None):
            run(json.dumps({"output": output, "reference": "same"}), 0)
    del sys.modules["evaluator"], linecache.cache["rehearsal.py"]
    sys.stdout = sys.stderr = sys.stdin = sys.__stdout__ = sys.__stderr__ = sys.__stdin__ = None
    _loaded = None


_REHEARSAL = """
import json
def evaluate(output, reference):
    if output is None:
        raise ValueError("missing")
    print("compared")
    return {"score": float(output == reference), "label": json.dumps(output)}
"""


def _load() -> str:
    module = types.ModuleType("evaluator")
    module.__file__ = _loaded.filename
    sys.modules["evaluator"] = module
    linecache.cache[_loaded.filename] = (len(_loaded.source), None, _loaded.source.splitlines(keepends=True), _loaded.filename)
    if _loaded.code:
        code = marshal.loads(base64.b64decode(_loaded.code))
    else:
        code = compile(_loaded.source, _loaded.filename, "exec", dont_inherit=True)
        _loaded.code = base64.b64encode(marshal.dumps(code)).decode()
    exec(code, module.__dict__)
    _loaded.evaluate = module.evaluate
    _loaded.positional = _positional_only(module.evaluate)
    return _quote(_loaded.code)


def _positional_only(function) -> tuple:
    """The (name, default) of each parameter that cannot be passed by name."""
    code = getattr(function, "__code__", None)
    if code is None or not code.co_posonlyargcount:
        return ()
    parameters = inspect.signature(function).parameters.values()
    return tuple((p.name, p.default) for p in parameters if p.kind is p.POSITIONAL_ONLY)


def _evaluate(arguments: str) -> str:
    keywords = _scan(arguments, 0)[0]
    if _loaded.positional:
        positional = [keywords.pop(name, default) for name, default in _loaded.positional]
        while positional and positional[-1] is inspect.Parameter.empty:
            positional.pop()
        result = _loaded.evaluate(*positional, **keywords)
    else:
        result = _loaded.evaluate(**keywords)
    if type(result) is types.CoroutineType:
        result = waiting.finish(result)
    return _json(result)


def _call_hook(name: str, argument: str) -> str:
    result = getattr(sys.modules["evaluator"], name)(_loads(argument))
    if type(result) is types.CoroutineType:
        result = waiting.finish(result)
    return "null" if name == "fit" else _json(result)


class _Unusable(Exception):
    """The value that came back cannot be carried out of the sandbox."""


def _json(value) -> str:
    if _too_deep(value, _DEPTH):
        raise _Unusable(f"evaluate returned a value that is nested more than {_DEPTH} levels deep")
    try:
        text = "".join(_encode(value, 0))
    except (TypeError, ValueError, RecursionError) as error:
        raise _Unusable(_unusable(value, error)) from None
    if len(text) > _loaded.result_bytes:
        raise _Unusable(f"evaluate returned {len(text)} bytes of JSON; the limit is {_loaded.result_bytes} (result_bytes)")
    if "\\ud" in text and _has_lone_surrogate(value):
        raise _Unusable("evaluate returned text with a lone surrogate, which no encoding can hold")
    return text


def _too_deep(value, room: int) -> bool:
    """Whether containers are nested deeper than `room`: encoding those would overflow the stack."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, _LISTS):
        return False
    if room == 0:
        return True
    for item in value:  # noqa: SIM110 - a generator here would cost more than the walk
        if isinstance(item, _CONTAINERS) and _too_deep(item, room - 1):
            return True
    return False


def _has_lone_surrogate(value) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _unusable(value, error: Exception) -> str:
    """Names the part of the value that JSON cannot hold."""
    found = _find_unusable(value, "", 0)
    if found is None:
        return f"evaluate returned a value that cannot be carried: {error}"[:_MESSAGE_CHARACTERS]
    where, what = found
    return f"evaluate returned {what}" + (f" at {where!r}" if where else "")


def _find_unusable(value, where: str, depth: int):
    """The first (place, description) that JSON cannot hold; looks a few levels deep, which is where people put them."""
    if depth > 8:
        return None
    kind = type(value)
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str | int | float | bool | None):
                return where, f"a dict with a key of type {type(key).__name__}"
            if found := _find_unusable(item, f"{where}.{key}" if where else str(key), depth + 1):
                return found
        return None
    if isinstance(value, list | tuple):
        for number, item in enumerate(value):
            if found := _find_unusable(item, f"{where}[{number}]", depth + 1):
                return found
        return None
    if isinstance(value, float):
        return None if value - value == 0 else (where, {"inf": "infinity", "-inf": "-infinity"}.get(repr(value), "NaN"))
    if isinstance(value, int):
        return (where, "an integer with thousands of digits") if abs(value) >> 13_000 else None
    if value is None or isinstance(value, str):
        return None
    return where, f"a value of type {kind.__name__}"


def _report(action, *arguments) -> str:
    """Runs the action with captured streams; its answer, or what went wrong, with what was printed."""
    streams = _loaded.streams
    streams.install()
    try:
        body = '{"kind":"returned","value":' + action(*arguments)
    except _Unusable as error:
        body = '{"kind":"invalid","message":' + _quote(str(error))
    except MemoryError:
        body = '{"kind":"exceeded","message":"the evaluator ran out of memory"'
    except BaseException as error:  # noqa: BLE001 - SystemExit and KeyboardInterrupt are the user's own doing too
        body = _raised(error)
    if streams.silent():
        return body + "}"
    stdout, stderr = streams.take()
    return f'{body},"stdout":{_quote(stdout)},"stderr":{_quote(stderr)}}}'


def _raised(error: BaseException) -> str:
    name = type.__getattribute__(type(error), "__name__")
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001 - a hostile __str__ is no reason to lose the row
        message = "(the exception's text could not be made)"
    try:
        trace = _traceback(error)
    except BaseException:  # noqa: BLE001
        trace = ""
    parts = (_quote(name[:200]), _quote(message[:_MESSAGE_CHARACTERS]), _quote(trace[-_TRACEBACK_CHARACTERS:]))
    return '{"kind":"raised","type":%s,"message":%s,"traceback":%s' % parts


def _traceback(error: BaseException) -> str:
    """The traceback with the lines of the user's own file only."""
    trace = traceback.TracebackException.from_exception(error, compact=True)
    _keep_user_frames(trace, 0)
    return "".join(trace.format())


def _keep_user_frames(trace, depth: int) -> None:
    if trace is None or depth > 20:
        return
    trace.stack[:] = [frame for frame in trace.stack if frame.filename == _loaded.filename]
    for other in (trace.__cause__, trace.__context__, *(trace.exceptions or ())):
        _keep_user_frames(other, depth + 1)


builtins.exit = builtins.quit = sys.exit
