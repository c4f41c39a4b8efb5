"""Cuts JSON text into rows without decoding it: one a line, or the elements of a list."""

import re
from collections.abc import Iterator

from evalcell.datasets.lines import LineCutter
from evalcell.datasets.row import MOST_BYTES, MOST_TEXT, Row
from evalcell.errors import DatasetError

# Strings are passed over whole, so that what looks like structure inside them is not; one that does not end yet
# takes the rest. Possessive, so that no input makes the search go back.
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\[\s\S][^"\\]*+)*+(?P<end>"|\\?\Z)|[\[\]{},]')
_REST_OF_STRING = re.compile(rb'[^"\\]*+(?:\\[\s\S][^"\\]*+)*+(?P<end>"|\\?\Z)')


class Lines:
    """Cuts text into rows at the ends of lines. Blank lines are no rows, but they count as lines."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._cutter = LineCutter()
        self._index = 0
        self._line = 0

    def feed(self, chunk: bytes) -> Iterator[Row]:
        yield from self._rows(self._cutter.feed(chunk))
        if self._cutter.held_bytes > MOST_BYTES:
            raise DatasetError(f"Line {self._line + 1} of {self._name} is longer than {MOST_TEXT}.")

    def end(self) -> Iterator[Row]:
        return self._rows([self._cutter.rest()])

    def _rows(self, lines: list[bytes]) -> Iterator[Row]:
        for line in lines:
            self._line += 1
            if text := line.strip():
                yield Row(self._index, self._line, text)
                self._index += 1


class Elements:
    """Cuts the text of a JSON list into its elements without decoding them, holding only the unfinished one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._text = bytearray()
        self._scanned = 0
        self._in_string = False
        self._depth = 0
        self._index = 0
        self._closed = False

    def feed(self, chunk: bytes) -> Iterator[Row]:
        self._text += chunk
        elements, start = [], 0
        if self._in_string and not self._leave(_REST_OF_STRING.match(self._text, self._scanned)):
            self._check()
            return
        for token in _TOKENS.finditer(self._text, self._scanned):
            first, end = token[0][:1], token.end()
            if first == b'"' and not self._leave(token):
                break  # goes on in the next chunk
            self._scanned = end
            opens, closes = first in (b"[", b"{"), first in (b"]", b"}")
            if self._depth == 1 and (first == b"," or closes):
                elements.append((bytes(self._text[start : token.start()]).strip(), first))
                start = end
            elif self._depth == 0 and opens:
                start = end
            self._depth += opens - closes
        else:
            self._scanned = len(self._text)
        del self._text[:start]
        self._scanned -= start
        for text, ending in elements:
            yield from self._row(text, ending)
        self._check()

    def _leave(self, string: "re.Match[bytes] | None") -> bool:
        """Whether the string has ended. Where it has not, what there is of it need not be looked at again."""
        assert string is not None
        self._in_string = string["end"] != b'"'
        self._scanned = string.end() - (string["end"] == b"\\")  # a backslash goes with what comes after it
        return not self._in_string

    def _row(self, text: bytes, ending: bytes) -> Iterator[Row]:
        if self._closed or ending == b"}":
            raise DatasetError(
                f"The dataset {self._name} is not one JSON list: it goes on after element {self._index}."
            )
        self._closed = ending == b"]"
        if text:
            yield Row(self._index, None, text)
            self._index += 1
        elif self._index or not self._closed:
            raise DatasetError(f"Element {self._index} of the dataset {self._name} is missing: a comma too many?")

    def _check(self) -> None:
        if self._closed and (self._depth or self._text.strip()):
            raise DatasetError(f"The dataset {self._name} goes on after the end of its list.")
        if len(self._text) > MOST_BYTES:
            raise DatasetError(f"Element {self._index} of the dataset {self._name} is longer than {MOST_TEXT}.")

    def end(self) -> Iterator[Row]:
        if not self._closed:
            raise DatasetError(f"The dataset {self._name} ends in the middle of element {self._index}.")
        return iter(())
