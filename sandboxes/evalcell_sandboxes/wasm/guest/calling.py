"""Loads the evaluator's module and calls `evaluate`, turning all that may happen into one JSON report."""

import base64
import builtins
import contextlib
import importlib.util
import json
import linecache
import marshal
import os
import sys
import types

import answers
import callers
import capture
import failures
import files
import heap
import lots
import results
import waiting

# User code may patch any of these between two rows that share state; the report is still made with the originals.
_quote = json.encoder.encode_basestring_ascii
_MOST_CODE_CHARACTERS = 1_000_000
_scan = json.JSONDecoder().scan_once  # what `json.loads` comes down to, without what it does around it
_encoded = results.encoded
_Coroutine = types.CoroutineType
_LAZY = (types.GeneratorType, types.AsyncGeneratorType)
_generator, _Unseeded = lots.generator, lots.Unseeded
_LINE_FEED = 10
_VALUE = '{"value":'
"""How the report of a value begins. `_report` ends it."""
_DONE, _STOP, _USED = answers.DONE, answers.STOP, answers.USED


def _loads(text: str):
    return _scan(text, 0)[0]


class Loaded:
    """The module after it was executed, with what a call needs to know."""

    def __init__(self, settings: dict) -> None:
        self.filename = settings["filename"]
        self.directory = settings["directory"]
        self.result_bytes = settings["result_bytes"]
        self.streams = capture.Streams(settings["stdout_bytes"], settings["stderr_bytes"])
        self.call = None
        self.code = settings["code"]
        self.room = settings["answer_bytes"]


_loaded: Loaded = None


def load(source: str, settings: str) -> str:
    """Executes the module. Reports its compiled code, which spares the next instance the compiling, or how it failed."""
    global _loaded
    options = _loads(settings)
    _loaded = Loaded(options)
    waiting.install()
    os.environ.update(options["environment"])
    if _loaded.directory:
        files.install(_loaded.directory)
    lots.begin(options["seed"])
    return _report(_load, source)


def settle(reserve_bytes: int) -> str:
    """Makes this the state that rows start from. Printed must be nothing yet, or every row would have printed it."""
    heap.settle(reserve_bytes)
    _loaded.streams.take()
    return ""


def run(rows: str) -> str:
    """Calls `evaluate` on each row, a line of its arguments, and answers row by row, where the host can read it.

    Comes back early where the host says so, or where there is no room for an answer, which is then what it returns.
    """
    contents, words, at, room = answers.contents, answers.words, answers.HEADER, _loaded.room
    words[_DONE] = words[_STOP] = 0
    words[_USED] = at
    for number, arguments in enumerate(rows.split("\n"), 1):
        lots.due = arguments
        if _generator.__class__ is not _Unseeded:
            lots.unseed()
        report = _report(_evaluate, arguments)
        text = report.encode()
        end = at + len(text)
        if end >= room:
            return report
        contents[at:end] = text
        contents[end] = _LINE_FEED
        words[_USED] = at = end + 1
        words[_DONE] = number
        if words[_STOP]:
            break
    return ""


def hook(name: str, argument: str) -> str:
    """Calls `fit` or `aggregate` with the one decoded argument and reports what it returned."""
    return _report(_call_hook, (name, argument))


def rehearse() -> None:
    """Runs the rehearsal on a few rows, as often as it takes to warm all of this up, and forgets it."""
    global _loaded
    source = importlib.util.find_spec("rehearsal").loader.get_source("rehearsal")
    settings = {"filename": "rehearsal.py", "directory": "", "environment": {}, "seed": 0, "code": ""}
    limits = dict.fromkeys(("result_bytes", "stdout_bytes", "stderr_bytes", "answer_bytes"), 10_000)
    for _ in range(20):
        settings["code"] = _loads(load(source, json.dumps(settings | limits)))["value"]
        run("\n".join(json.dumps({"output": output, "reference": "the same words"}) for output in _REHEARSED))
    del sys.modules["evaluator"], linecache.cache["rehearsal.py"]
    sys.stdout = sys.stderr = sys.stdin = sys.__stdout__ = sys.__stderr__ = sys.__stdin__ = None
    _loaded = None


_REHEARSED = ("the same words", "print other words, 12.5 of them!", "other words", None)


def _load(source: str) -> str:
    module = types.ModuleType("evaluator")
    module.__file__ = f"{_loaded.directory}/{_loaded.filename}" if _loaded.directory else _loaded.filename
    module.__dict__["__builtins__"] = vars(builtins)  # and not our own, in which nobody bends anything
    sys.modules["evaluator"] = module
    linecache.cache[_loaded.filename] = (
        len(source),
        None,
        source.splitlines(keepends=True),
        _loaded.filename,
    )
    if _loaded.code:
        code = marshal.loads(base64.b64decode(_loaded.code))
    else:
        code = compile(source, _loaded.filename, "exec", dont_inherit=True)
        _loaded.code = base64.b64encode(marshal.dumps(code)).decode()
    exec(code, module.__dict__)
    _loaded.call = callers.caller(module.evaluate)
    heap.collect()
    return _VALUE + _quote(_loaded.code if len(_loaded.code) < _MOST_CODE_CHARACTERS else "")


def _evaluate(arguments: str) -> str:
    try:
        named = _scan(arguments, 0)[0]
    except (ValueError, RecursionError) as error:
        raise results.Unusable(f"the row's arguments cannot be read: {error}") from None
    result = _loaded.call(named)
    if type(result) is _Coroutine:
        result = waiting.finish(result)
    return _VALUE + _encoded(result, _loaded.result_bytes)


def _call_hook(call: tuple) -> str:
    name, argument = call
    module = sys.modules["evaluator"]
    result = getattr(module, name)(_loads(argument) if name != "fit" else _rows(argument))
    if type(result) is _Coroutine:
        result = waiting.finish(result)
    if type(result) in _LAZY:
        raise results.Unusable(f"{name} has a yield in it, so nothing of it was executed. Return something instead")
    if name != "fit":
        return _VALUE + _encoded(result, _loaded.result_bytes)
    _loaded.call = callers.caller(module.evaluate)
    heap.collect()
    return _VALUE + "null"


def _rows(text: str) -> list:
    """The rows to fit on, a line each; one that cannot be read is left out, and fails when its turn comes."""
    rows = []
    for line in text.split("\n"):
        with contextlib.suppress(ValueError, RecursionError):
            rows.append(_loads(line))
    return rows


def _report(action, argument) -> str:
    """Runs the action with captured streams; its answer, or what went wrong, with what was printed."""
    streams = _loaded.streams
    try:
        streams.install()
        body = action(argument)
    except results.Unusable as error:
        body = '{"kind":"invalid","message":' + _quote(str(error))
    except MemoryError:
        body = '{"kind":"exceeded","message":"the evaluator ran out of memory"'
    except BaseException as error:
        body = failures.raised(error, _loaded.filename)
    if streams.printed:
        stdout, stderr = streams.take()
        return f'{body},"stdout":{_quote(stdout)},"stderr":{_quote(stderr)}}}'
    return body + "}"


builtins.exit = builtins.quit = sys.exit
