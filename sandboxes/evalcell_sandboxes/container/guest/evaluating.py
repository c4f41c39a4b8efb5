"""Loads the evaluator's module and calls what it defines, turning all that may happen into one JSON report.

Hostile code shares the interpreter with this: what it says about a row is that row's author speaking. What it owes is
fairness to honest code: clean errors, captured prints, results that say what they were.
"""

import contextlib
import gc
import json
import linecache
import sys
import types

import callers
import failures
import lots
import pages
import prints
import results
import room

_loads = json.loads
_LAZY = (types.GeneratorType, types.AsyncGeneratorType)
_NEEDS_LIST = "evaluate_batch must return a list with one result for each row"


class Evaluator:
    """The module after it was executed, with what a call needs to know."""

    def __init__(self, settings: dict) -> None:
        self.filename = settings["filename"]
        self._directory = settings["directory"]
        limits = settings["limits"]
        self.streams = prints.Streams(limits["stdout_bytes"], limits["stderr_bytes"])
        self._result_bytes = limits["result_bytes"]
        self._forks = settings["fresh_rows"]
        self._keeps = settings["keeps"]
        self._call = self._call_batch = None
        lots.begin(settings["seed"])

    def load(self, source: str) -> str:
        """Executes the module. Reports whether it takes rows in batches."""
        module = types.ModuleType("evaluator")
        module.__file__ = f"{self._directory}/{self.filename}" if self._directory else self.filename
        sys.modules["evaluator"] = module
        linecache.cache[self.filename] = (len(source), None, source.splitlines(keepends=True), self.filename)
        exec(compile(source, self.filename, "exec", dont_inherit=True), module.__dict__)
        self._settle()
        return '{"value":' + ("true" if self._call_batch is not None else "false")

    def _settle(self) -> None:
        """Finds what to call, and makes the state that rows start from cheap to fork."""
        self._find_hooks()
        gc.collect()
        if self._keeps:
            room.leave()
        gc.freeze()  # so that collecting in a fork does not touch, and so copy, what is shared with it
        if self._forks:
            pages.join()

    def _find_hooks(self) -> None:
        module = sys.modules["evaluator"]
        self._call = callers.caller(module.evaluate)
        self._call_batch = getattr(module, "evaluate_batch", None)

    def fit(self, rows: str) -> str:
        """Calls `fit` with the rows, a line each; one that cannot be read is left out, and fails when its turn comes."""
        found = []
        for line in rows.split("\n"):
            with contextlib.suppress(ValueError, RecursionError):
                found.append(_loads(line))
        self._finished("fit", sys.modules["evaluator"].fit(found))
        self._settle()
        return '{"value":null'

    def evaluate(self, row: str) -> str:
        """Calls `evaluate` with the arguments of a row."""
        lots.due = row
        lots.unseed()
        result = self._call(_arguments(row))
        if type(result) is types.CoroutineType:
            result = _completed(result)
        return self._encode(result)

    def evaluate_batch(self, rows: list) -> list:
        """Calls `evaluate_batch` with the arguments of all rows, and gives a report for each."""
        lots.due = rows[0]
        lots.unseed()
        found = self._finished("evaluate_batch", self._call_batch([_arguments(row) for row in rows]))
        if not isinstance(found, list | tuple) or len(found) != len(rows):
            raise results.Unusable(_NEEDS_LIST)
        return [self.report(self._encode, value) for value in found]

    def aggregate(self, text: str) -> str:
        """Calls `aggregate` with the results of all rows."""
        value = self._finished("aggregate", sys.modules["evaluator"].aggregate(_loads(text)))
        return self._encode(value)

    def _encode(self, value) -> str:
        return '{"value":' + results.encoded(value, self._result_bytes)

    def _finished(self, name: str, result):
        if type(result) is types.CoroutineType:
            result = _completed(result)
        if type(result) in _LAZY:
            raise results.Unusable(f"{name} has a yield in it, so nothing of it was executed. Return something instead")
        return result

    def report(self, action, argument) -> str:
        """Runs the action with captured streams: its answer, or what went wrong."""
        try:
            self.streams.install()
            body = action(argument)
        except results.Unusable as error:
            body = json.dumps({"kind": "invalid", "message": str(error)})[:-1]
        except MemoryError:
            body = '{"kind":"exceeded","message":"the evaluator ran out of memory"'
        except BaseException as error:
            body = failures.raised(error, self.filename)
        return body + "}"


def _arguments(row: str):
    try:
        return _loads(row)
    except (ValueError, RecursionError) as error:
        raise results.Unusable(f"the row's arguments cannot be read: {error}") from None


def _completed(coroutine):
    import asyncio  # slow to import, and seldom needed

    return asyncio.run(coroutine)
