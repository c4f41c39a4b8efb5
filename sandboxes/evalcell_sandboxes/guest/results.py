"""Encodes what `evaluate` returned, or says by name which part of it cannot be carried out of the sandbox."""

import json

_DEPTH = 64
_SEARCHED_DEPTH = 8
_LARGE = 10**15
_LISTS = (list, tuple)
_CONTAINERS = (dict, list, tuple)
_KEYS = (str, int, float, bool, type(None))
# What `json.dumps` comes down to, without what it builds anew on every call. Cycles need no markers: a value is
# encoded only after `_too_deep` has found it shallow.
_chunks = json.encoder.c_make_encoder(
    None, json.JSONEncoder().default, json.encoder.encode_basestring_ascii, None, ": ", ", ", False, False, False
)


class Unusable(Exception):
    """The value that came back cannot be carried out of the sandbox."""


def encoded(value, most_bytes: int) -> str:
    """The value as JSON, in ASCII."""
    kind = type(value)  # most return a number or a verdict
    if kind is float and value - value == 0:
        return repr(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int and -_LARGE < value < _LARGE:
        return repr(value)
    if _too_deep(value, _DEPTH):
        raise Unusable(f"evaluate returned a value that is nested more than {_DEPTH} levels deep")
    try:
        text = "".join(_chunks(value, 0))
    except (TypeError, ValueError, RecursionError) as error:
        raise Unusable(_unusable(value, error)) from None
    if len(text) > most_bytes:
        raise Unusable(f"evaluate returned {len(text)} bytes of JSON; the limit is {most_bytes} (result_bytes)")
    if "\\ud" in text and _has_lone_surrogate(value):
        raise Unusable("evaluate returned text with a lone surrogate, which no encoding can hold")
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
    found = _find(value, "", 0)
    if found is None:
        return f"evaluate returned a value that cannot be carried: {error}"[:4_000]
    where, what = found
    return f"evaluate returned {what}" + (f" at {where!r}" if where else "")


def _find(value, where: str, depth: int):
    """The first (place, description) that JSON cannot hold. Looks a few levels deep, which is where people put them."""
    if not isinstance(value, _CONTAINERS):
        what = _leaf(value)
        return what and (where, what)
    if depth == _SEARCHED_DEPTH:
        return None
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in pairs:
        if not isinstance(key, _KEYS):
            return where, f"a dict with a key of type {type(key).__name__}"
        place = f"[{key}]" if isinstance(value, _LISTS) else f".{key}" if where else str(key)
        if found := _find(item, where + place, depth + 1):
            return found
    return None


def _leaf(value) -> str | None:
    """What is wrong with a value that holds no others; None when nothing is."""
    if isinstance(value, float):
        return None if value - value == 0 else {"inf": "infinity", "-inf": "-infinity"}.get(repr(value), "NaN")
    if isinstance(value, int):
        return "an integer with thousands of digits" if abs(value) >> 13_000 else None
    return None if value is None or isinstance(value, str) else f"a value of type {type(value).__name__}"
