"""The values of variables that were granted: read where the run is started, and hidden wherever code lets them out.

Hiding is for honest code, which prints what it should not, or raises an error with its token in it. Hostile code was
given the value, and can spell it backwards.
"""

import base64
import json
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
_PART_CHARACTERS = 4
"""As much of a value as is hidden where the rest was cut off."""
_UNCUT_CHARACTERS = 200
"""No text that is shorter than this was ever cut without saying so."""
_CUT = re.compile(r"\n\[\d+ more bytes were dropped: the limit is \d+\]\Z")


def granted_values(names: Sequence[str]) -> dict[str, str]:
    """The values of these variables, here and now.

    Raises:
        UsageError: One is not set, or is no text.
    """
    values = {}
    for name in names:
        value = os.environ.get(name)
        if value is None:
            raise UsageError(f"The variable {name!r} is granted, but not set here. Set it, or leave out --env {name}.")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"The variable {name!r} is granted, but what it holds is no text.") from None
        values[name] = value
    return values


class Mask:
    """Hides values in whatever comes out."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._forms = {form: f"[{name} is hidden]" for name, value in values.items() for form in _forms(value)}
        longest_first = sorted(self._forms, key=len, reverse=True)
        self._found = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def around(self, session: Session) -> Session:
        """The session, with nothing coming out of it but what was looked at here."""
        return _MaskedSession(session, self)

    def text(self, text: str) -> str:
        """The text without the values, also where one was cut off at an end of it."""
        if self._found is None or not text:
            return text
        hidden = self._found.sub(lambda match: self._forms[match[0]], text)
        note = match[0] if (match := _CUT.search(hidden)) else ""
        if not note and len(hidden) < _UNCUT_CHARACTERS:
            return hidden
        return self._without_ends(hidden.removesuffix(note)) + note

    def _without_ends(self, text: str) -> str:
        """The text without the beginning of a value at its end, or the end of one at its beginning."""
        for form, instead in self._forms.items():
            sizes = range(len(form) - 1, _PART_CHARACTERS - 1, -1)
            if size := next((size for size in sizes if text.endswith(form[:size])), 0):
                text = text[:-size] + instead
            if size := next((size for size in sizes if text.startswith(form[-size:])), 0):
                text = instead + text[size:]
        return text

    def outcome(self, outcome: Outcome) -> Outcome:
        """The outcome without the values: in what was printed, in what was raised, and in what came back."""
        changed: dict[str, Any] = {"stdout": self.text(outcome.stdout), "stderr": self.text(outcome.stderr)}
        match outcome:
            case Returned(value=value):
                shown = self._json(value)
                if shown is None:
                    message = "the result holds the value of a variable that was granted, as a number"
                    return Invalid(message=message, usage=outcome.usage, **changed)
                changed["value"] = shown
            case Raised(exception=exception, message=message, traceback=traceback):
                texts = {"exception": exception, "message": message, "traceback": traceback}
                changed |= {name: self.text(text) for name, text in texts.items()}
            case _:
                changed["message"] = self.text(outcome.message)
        return msgspec.structs.replace(outcome, **changed)

    def _json(self, value: bytes) -> bytes | None:
        """The value with its texts changed; None where one is in it as something else than text."""
        if self._found is None:
            return value
        try:
            decoded = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self.text(value.decode(errors="replace")).encode()  # which nobody else will be able to read either
        shown = msgspec.json.encode(self._walk(decoded))
        return None if self._found.search(shown.decode()) else shown

    def _walk(self, value: Any) -> Any:
        """The value with its texts changed. How deep it may be was seen to when it came in."""
        match value:
            case str():
                return self.text(value)
            case list():
                return [self._walk(item) for item in value]
            case dict():
                return {self.text(key): self._walk(item) for key, item in value.items()}
        return value


def _forms(value: str) -> Iterator[str]:
    """The value, and the ways in which it is usually written."""
    if len(value) < LEAST_CHARACTERS:
        return
    yield value
    yield repr(value)[1:-1]
    yield json.dumps(value)[1:-1]
    lines = value.splitlines()
    yield from (line for line in lines if len(lines) > 1 and len(line) >= LEAST_CHARACTERS)
    yield quote(value, safe="")
    yield quote_plus(value)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(value.encode()).decode().rstrip("=")


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
