"""The values of variables that were granted: read where the run is started, and hidden wherever code lets them out.

Hiding is for honest code, which prints what it should not, or raises an error with its token in it. Hostile code was
given the value, and can spell it backwards.
"""

import base64
import html
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from evalcell.errors import UsageError
from evalcell_sandboxes import Invalid, Outcome, Raised, Returned, Session
from evalcell_sandboxes.sandbox import Raw

LEAST_CHARACTERS = 8
"""A shorter value is no secret, and to hide a "true" or an "8080" would tear holes into everything else."""
_PART_CHARACTERS = 6
"""As much of a value is hidden at the end of a text, where the rest of it may have been cut off."""
_NUMBER_CHARACTERS = 12
"""From here on a value is not to be part of a number either."""
_MOST_TRIES = 64
_LONGEST_NAME = 60
_NOTE = re.compile(r"(?:\\x[0-9a-f]{2}){0,3}\n\[\d+ more bytes were dropped: the limit is \d+\]")
"""What is said where prints were cut, after what is left of a character that was cut in two."""
_APART = "\0"
"""Stands between texts that are looked through together: it is in no variable, so in no form of one."""


def granted_values(names: Sequence[str]) -> dict[str, str]:
    """The values of these variables, here and now.

    Raises:
        UsageError: One is not set, or is no text.
    """
    values = {}
    for name in names:
        value = os.environ.get(name)
        if value is None:
            raise UsageError(_not_set(name))
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"The variable {name!r} is granted, but what it holds is no text.") from None
        values[name] = value
    return values


def _not_set(name: str) -> str:
    """Tokens may pass for names. What does not look like one is not repeated: it may be the value itself."""
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*|[a-z]{1,12}_proxy", name) or len(name) > _LONGEST_NAME:
        return "A variable is granted that is not set here. Name it as it is called, such as API_TOKEN, and set it."
    return f"The variable {name!r} is granted, but not set here. Set it, such as: export {name}=..."


class Mask:
    """Hides values in whatever comes out."""

    def __init__(self, values: Mapping[str, str]) -> None:
        forms = {form: f"[{name} is hidden]" for name, value in values.items() for form in _forms(value)}
        self._forms = dict(sorted(forms.items(), key=lambda form: len(form[0]), reverse=True))
        self._bytes = [form.encode() for form in self._forms]
        self._digits = {digits for form in self._forms if (digits := _digits(form))}
        self._numbers = {abs(float(form)) for form in self._forms if _digits(form)}

    def around(self, session: Session) -> Session:
        """The session, with nothing coming out of it but what was looked at here."""
        return _MaskedSession(session, self)

    def text(self, text: str) -> str:
        """The text without the values, also where one was cut off at an end of it, or before the note that says so."""
        if not text:
            return text
        text = _without(text, self._forms)
        if (note := next(reversed(list(_NOTE.finditer(text))), None)) is None:
            return self._without_ends(text)
        after = self._without_ends(text[note.end() :])  # which has reached standard output in another way
        return self._without_ends(text[: note.start()]) + note[0] + after

    def _without_ends(self, text: str) -> str:
        """The text without the beginning of a value at its end, or the end of one at its beginning."""
        for form, instead in self._forms.items():
            if size := _cut_off(text[1 - len(form) :], form):
                text = text[:-size] + instead
            if size := _cut_off(text[: len(form) - 1][::-1], form[::-1]):
                text = instead + text[size:]
        return text

    def outcome(self, outcome: Outcome) -> Outcome:
        """The outcome without the values: in what was printed, in what was raised, and in what came back."""
        changed: dict[str, Any] = {}
        if outcome.stdout or outcome.stderr:
            changed = {"stdout": self.text(outcome.stdout), "stderr": self.text(outcome.stderr)}
        match outcome:
            case Returned(value=value):
                if self._may_be_in(value):
                    return self._returned(outcome, value, changed)
            case Raised(exception=exception, message=message, traceback=traceback):
                texts = {"exception": exception, "message": message, "traceback": traceback}
                changed |= {name: self.text(text) for name, text in texts.items()}
            case _:
                changed["message"] = self.text(outcome.message)
        return msgspec.structs.replace(outcome, **changed) if changed else outcome

    def _may_be_in(self, value: bytes) -> bool:
        """Whether a value has to be looked into: only text and numbers can be spelled in other ways."""
        return b'"' in value or bool(self._numbers) or any(form in value for form in self._bytes)

    def _returned(self, outcome: Returned, value: bytes, changed: dict[str, Any]) -> Outcome:
        try:
            shown = self._value(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            shown = self.text(value.decode(errors="replace")).encode()  # which nobody else will be able to read either
        except _InNumber:
            message = "the result holds the value of a variable that was granted, as a number"
            return Invalid(message=message, usage=outcome.usage, **changed)
        return msgspec.structs.replace(outcome, value=shown, **changed)

    def _value(self, value: bytes) -> bytes:
        """What came back, without the values. It is whole, so parts of a value in it are no remains of one.

        There may be very many texts in it, and nobody has set a limit on how long this takes: so they are looked
        through together, and one by one only for what is there.
        """
        decoded = msgspec.json.decode(value)
        texts = _APART.join(_leaves(decoded, str))
        if self._numbers:
            self._check_numbers([number for number in _leaves(decoded, (int, float)) if not isinstance(number, bool)])
        forms = {form: instead for form, instead in self._forms.items() if form in texts}
        return msgspec.json.encode(_walk(decoded, forms)) if forms else value

    def _check_numbers(self, numbers: list[int | float]) -> None:
        if not self._numbers.isdisjoint(map(_magnitude, numbers)):
            raise _InNumber
        written = _APART.join(map(repr, numbers))
        if any(len(digits) >= _NUMBER_CHARACTERS and digits in written for digits in self._digits):
            raise _InNumber


def _without(text: str, forms: Mapping[str, str]) -> str:
    for form, instead in forms.items():
        if form in text:
            text = text.replace(form, instead)
    return text


def _leaves(value: Any, kind: type | tuple[type, ...]) -> Iterator[Any]:
    """Every text in a value, keys too, or every number. How deep it may be was seen to when it came in."""
    match value:
        case list():
            for item in value:
                yield from _leaves(item, kind)
        case dict():
            for key, item in value.items():
                yield from _leaves(key, kind)
                yield from _leaves(item, kind)
        case _ if isinstance(value, kind):
            yield value


def _walk(value: Any, forms: Mapping[str, str]) -> Any:
    """The value with its texts changed."""
    match value:
        case str():
            return _without(value, forms)
        case list():
            return [_walk(item, forms) for item in value]
        case dict():
            return _walk_table(value, forms)
    return value


def _walk_table(table: dict[str, Any], forms: Mapping[str, str]) -> dict[str, Any]:
    """Keys that would be the same now are told apart by a number: nothing that was returned goes missing."""
    changed: dict[str, Any] = {}
    for key, item in table.items():
        shown = name = _without(key, forms)
        while shown in changed:
            shown = f"{name} {len(changed)}"
        changed[shown] = _walk(item, forms)
    return changed


def _digits(form: str) -> str | None:
    """What is sure to be there of a form if it is taken for a number, which is written without sign and without zeros
    that mean nothing. None where it is no number, or too short to be told from chance.
    """
    number = form[1:] if form.startswith(("+", "-")) else form
    digits = (number.rstrip("0").rstrip(".") if "." in number else number).lstrip("0.")
    is_number = number.isascii() and number.replace(".", "", 1).isdecimal()
    return digits if is_number and len(digits) >= LEAST_CHARACTERS else None


def _magnitude(number: float) -> float:
    try:
        return abs(float(number))
    except OverflowError:
        return math.nan  # which is no value's


class _InNumber(Exception):
    """A value came back as a number, in which nothing can be hidden."""


def _cut_off(end: str, form: str) -> int:
    """How much of the beginning of a form is at the end of a text, which is no longer than that."""
    start = -1
    for _ in range(_MOST_TRIES):
        start = end.find(form[:_PART_CHARACTERS], start + 1)
        if start < 0:
            break
        if form.startswith(end[start:]):
            return len(end) - start
    return 0


def _forms(value: str) -> Iterator[str]:
    """The ways in which a value, and each line of it, is usually written."""
    for text in dict.fromkeys(
        part for line in (value, *value.splitlines()) for part in (line, line.strip()) if len(part) >= LEAST_CHARACTERS
    ):
        yield text
        yield _digits(text) or text
        yield repr(text)[1:-1]
        yield ascii(text)[1:-1]
        yield repr(text + "'\"")[1:-4]  # with both quotes around it in one text, its own are escaped
        yield repr(text.encode())[2:-1]
        yield (quoted := json.dumps(text)[1:-1])
        yield json.dumps(quoted)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        yield html.escape(text)
        for escaped in (quote(text), quote(text, safe=""), quote_plus(text)):
            yield escaped
            yield re.sub("%..", lambda escape: escape[0].lower(), escaped)
        yield text.encode().hex()
        yield text.encode().hex().upper()
        yield from filter(lambda form: len(form) >= LEAST_CHARACTERS, _base64(text.encode()))


def _base64(content: bytes) -> Iterator[str]:
    """What is sure to be there of it in base64, whatever stands before and after it, as a user's name in a header."""
    for before in range(3):
        whole = bytes(before) + content
        first, last = -(-before * 8 // 6), len(whole) * 8 // 6
        yield base64.b64encode(whole).decode()[first:last]
        yield base64.urlsafe_b64encode(whole).decode()[first:last]


class _MaskedSession(Session):
    """A session out of which no granted value comes."""

    def __init__(self, session: Session, mask: Mask) -> None:
        self._session = session
        self._mask = mask

    @property
    def loaded(self) -> Outcome:
        return self._mask.outcome(self._session.loaded)

    def fit(self, rows: Sequence[Raw]) -> Outcome:
        return self._mask.outcome(self._session.fit(rows))

    def bursts(self, rows: Sequence[Raw]) -> Iterator[list[Outcome]]:
        for outcomes in self._session.bursts(rows):
            yield [self._mask.outcome(outcome) for outcome in outcomes]

    def aggregate(self, results: Raw) -> Outcome:
        return self._mask.outcome(self._session.aggregate(results))

    def check(self) -> None:
        self._session.check()
