"""Turns wasmtime's errors into outcomes. Whatever ends a call into the guest is the guest's doing."""

from wasmtime import WasmtimeError

from evalcell_sandboxes.outcome import Crashed, Exceeded, Usage
from evalcell_sandboxes.wasm.host import EXIT, SLEEP, TIME


def outcome_of_trap(
    error: WasmtimeError, denial: str | None, seconds_limit: str, seconds: float, usage: Usage
) -> Exceeded | Crashed:
    """What the trap means for the call: a limit that was reached, or a crash.

    The text of a trap comes from wasmtime and from the names in our own image; the guest has no part in it.
    """
    text = str(error)
    if denial in (SLEEP, TIME):
        verb = "slept past" if denial == SLEEP else "ran into"
        return Exceeded(limit=seconds_limit, message=f"the call {verb} its limit of {seconds:g} s", usage=usage)
    if "call stack exhausted" in text:
        return Exceeded(limit="stack", message="the call stack is exhausted: recursion is too deep", usage=usage)
    if denial == EXIT:
        return Crashed(message="the code ended its own interpreter (os._exit or abort)", usage=usage)
    return Crashed(message=f"the interpreter died: {(denial or _cause(text))[:300]}", usage=usage)


def _cause(text: str) -> str:
    """The line that names the trap, or else the first one of what wasmtime says caused it."""
    lines = [line.strip() for line in text.rpartition("Caused by:")[2].splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "wasm trap:" in line), lines[0] if lines else "unknown trap")
