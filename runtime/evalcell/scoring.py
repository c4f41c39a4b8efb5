"""Turns what `evaluate` returned into scores, accepting what people already write and refusing the rest by name.

The value is decoded JSON from a hostile guest. Whatever passes here has the types it says, lies within the output
configuration, and is finite.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sized
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from evalcell.errors import did_you_mean
from evalcell.output import Output

# What other systems call the same things; the left-hand names are looked for in this order.
_EXPLANATIONS = ("explanation", "reason", "comment", "rationale")
_NAMES = ("name", "key")
_PASSES = ("passed", "pass", "pass_", "success")
_SCORE_KEYS = ("score", "value", "label", *_PASSES)
_KNOWN = (*_SCORE_KEYS, *_EXPLANATIONS, *_NAMES, "metadata", "scores", "namedScores")
_SHOWN_CHARACTERS = 120
_MOST_SCORES = 100


class Score(Struct, frozen=True, gc=False):
    """One validated score. `score` is None when it was skipped, or when a label is all there is."""

    name: str | None = None
    score: float | None = None
    label: str | None = None
    passed: bool | None = None
    explanation: str | None = None
    metadata: dict[str, Any] | None = None
    skipped: bool = False


class InvalidResult(ValueError):
    """What came back is no score; the message says what it was."""


def scores_of(value: Any, output: Output, default_name: str = "") -> list[Score]:
    """The scores in a returned value, at least one, with distinct names. One without a name has the default one.

    Raises:
        InvalidResult: It holds none, or one that the output configuration does not allow.
    """
    read = _read(value)
    if len(read) == 1:
        return [_configured(read[0], output)]
    _check_count(read)
    scores = [_configured(score, output) for score in read]
    if sum(not score.name for score in scores) > 1:
        raise InvalidResult("evaluate returned several scores without a 'name'")
    (name, count) = Counter(score.name or default_name for score in scores).most_common(1)[0]
    if count > 1:
        raise InvalidResult(f"evaluate returned two scores named {shown(name)}")
    return scores


def _read(value: Any) -> list[Score]:
    match value:
        case bool():
            return [Score(score=float(value), passed=value)]
        case int() | float():
            return [Score(score=_number(value, "the score"))]
        case str():
            return [Score(label=value)]
        case dict():
            return _read_dict(value)
        case list():
            return _read_list(value)
        case None:
            raise InvalidResult(
                "evaluate returned nothing: did you forget return? "
                "(For a row without a score, return {'score': None}; in TypeScript, { score: null }.)"
            )
    raise InvalidResult(f"evaluate returned {shown(value)}, which is no score")


def _check_count(items: Sized) -> None:
    """Every score becomes a record, made on the host: how many there may be is not the guest's to say."""
    if len(items) > _MOST_SCORES:
        raise InvalidResult(f"evaluate returned {len(items)} scores; {_MOST_SCORES} are allowed for a row")


def _read_list(items: list[Any]) -> list[Score]:
    if not items:
        raise InvalidResult("evaluate returned an empty list: there is no score in it")
    _check_count(items)
    scores = []
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise InvalidResult(
                f'item {number} of the returned list is {shown(item)}; write {{"name": "f1", "score": 1}} for each'
            )
        scores += _read_dict(item)
    return scores


def _read_dict(value: dict[str, Any]) -> list[Score]:
    if isinstance(value.get("scores"), list) and not any(key in value for key in _SCORE_KEYS):
        return _read_list(value["scores"])
    named = _take(dict(value), ("namedScores",), dict, "an object") or {}
    _check_count(named)
    own = [_read_one(value)] if any(key in value for key in _SCORE_KEYS) else []
    scores = own + [_named(name, item) for name, item in named.items()]
    return scores or _read_named(value)


def _read_named(value: Mapping[str, Any]) -> list[Score]:
    """`{"precision": {...}, "recall": 0.5}`: a dict of scores, as long as no key looks like a slip of the pen."""
    _check_count(value)
    slips = [key for key in value if key in _KNOWN or _is_slip(key)]
    suspect = slips[0] if len(slips) == 1 or any(key in _KNOWN for key in slips) else None
    plain = all(isinstance(item, dict | bool | int | float) for item in value.values())
    if not value or suspect is not None or not plain:
        keys = ", ".join(map(repr, list(value)[:8])) or "no keys"
        hint = did_you_mean(suspect, _SCORE_KEYS) if suspect else ""
        raise InvalidResult(f"evaluate returned an object without score, label or passed; it has {keys}.{hint}")
    return [_named(name, item) for name, item in value.items()]


def _is_slip(key: str) -> bool:
    """Whether the key is one of ours misspelt, as `scroe` is and `f1_score` is not."""
    similar = get_close_matches(key, _SCORE_KEYS, n=1, cutoff=0.8)
    return bool(similar) and abs(len(similar[0]) - len(key)) <= 1


def _named(name: str, item: Any) -> Score:
    if isinstance(item, list):
        raise InvalidResult(f"the score named {shown(name)} is a list; write a number or an object")
    inner = _read_one(item) if isinstance(item, dict) else _read(item)[0]
    return Score(name, inner.score, inner.label, inner.passed, inner.explanation, inner.metadata, inner.skipped)


def _read_one(value: Mapping[str, Any]) -> Score:
    """One score. What has a meaning is taken out of a copy; what is left is metadata, so that nothing is lost."""
    rest = {key: item for key, item in value.items() if key != "namedScores"}
    passed = _take(rest, _PASSES, bool, "true or false")
    label = _take(rest, ("label",), str, "text")
    name = _take(rest, _NAMES, str, "text")
    explanation = _take(rest, _EXPLANATIONS, str, "text")
    metadata = _take(rest, ("metadata",), dict, "an object") or {}
    score, skipped = None, False
    if "score" in rest or (label is None and "value" in rest and not isinstance(rest["value"], str)):
        score = rest.pop("score" if "score" in rest else "value")
        skipped = score is None
    elif label is None and "value" in rest:
        label = rest.pop("value")
    elif label is None:
        score = passed
    if isinstance(score, bool) and passed is None:
        passed = score
    return Score(
        name=name,
        score=None if score is None else _number(score, "score"),
        label=label,
        passed=passed,
        explanation=explanation,
        metadata={**rest, **metadata} or None,
        skipped=skipped,
    )


def _take(rest: dict[str, Any], keys: tuple[str, ...], kind: type, described: str) -> Any:
    """Takes the first of the keys that holds something, which must be of that type; those that hold nothing go too."""
    for key in keys:
        found = rest.get(key)
        if found is None:
            rest.pop(key, None)
        elif isinstance(found, kind):
            return rest.pop(key)
        else:
            raise InvalidResult(f"{key} must be {described}, but it is {shown(found)}")
    return None


def _number(value: Any, what: str) -> float:
    if not isinstance(value, bool | int | float):
        raise InvalidResult(f"{what} must be a number, but it is {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        raise InvalidResult(f"{what} is an integer too large for a float") from None
    if not math.isfinite(number):
        raise InvalidResult(f"{what} must be finite, but it is {number}")
    return number


def _configured(score: Score, output: Output) -> Score:
    """The score held against the output configuration."""
    number = score.score
    if score.skipped:
        return score
    if number is None and score.label is None and score.passed is None:
        raise InvalidResult("evaluate returned an object with nothing in it: no score, no label, no verdict")
    if output.kind == "freeform" and output.threshold is None:
        return score
    if output.kind == "categorical":
        number = _category_score(score, output)
    if output.kind == "continuous":
        if number is None:
            raise InvalidResult(
                f"a continuous score was expected, but evaluate returned only the label {shown(score.label)}"
            )
        inside = output.in_range(number)
        if inside is None:
            raise InvalidResult(f"score {number!r} is outside its range {output.low:g}..{output.high:g}")
        number = inside
    verdict = None if number is None else output.passes(number)
    return Score(
        score.name, number, score.label, score.passed if verdict is None else verdict, score.explanation, score.metadata
    )


def _category_score(score: Score, output: Output) -> float | None:
    allowed = ", ".join(map(repr, output.labels))
    if score.label is None:
        raise InvalidResult(f"a label was expected, one of {allowed}, but evaluate returned none")
    if score.label not in output.labels:
        raise InvalidResult(f"label {shown(score.label)} is not one of {allowed}")
    defined = output.labels[score.label]
    if defined is not None and score.score is not None and abs(defined - score.score) > 1e-9:  # noqa: PLR2004
        raise InvalidResult(
            f"label {score.label!r} scores {defined:g} by its configuration, but evaluate returned {score.score!r}"
        )
    return score.score if defined is None else defined


def shown(value: Any) -> str:
    """What came back, for a sentence that says what is wrong with it."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
