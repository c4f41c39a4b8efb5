"""Makes rows ready to run: each with its id, and with the arguments that its plan binds."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw, Struct

from evalcell.binding import Binder, Unbound
from evalcell.datasets import Row
from evalcell.paths import MISSING, Missing, Path
from evalcell.plan import Plan
from evalcell.records import Error

_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_text_or_integer = msgspec.json.Decoder(str | int).decode
_ID = "id"
_BOUND_BYTES = 8 * 1024**2


class Ready(Struct, frozen=True, gc=False):
    """A row with its id, and either the arguments to run it with or the error that it ends with."""

    row: Row
    id: str | int
    arguments: bytes
    error: Error | None = None
    malformed: str | None = None


class RowBinder:
    """Makes raw rows ready for one plan."""

    def __init__(self, plan: Plan) -> None:
        self._binder = Binder(plan.bindings)
        self._id_path = Path(_ID if plan.id_path is None else plan.id_path)
        self._id_required = plan.id_path is not None

    def bind_all(self, rows: Sequence[Row]) -> Iterator[list[Ready]]:
        """As many rows at a time as weigh little: bindings may repeat a row many times over."""
        some: list[Ready] = []
        size = 0
        for row in rows:
            ready = self.bind(row)
            some.append(ready)
            size += len(ready.arguments)
            if size > _BOUND_BYTES:
                yield some
                some, size = [], 0
        if some:
            yield some

    def bind(self, row: Row) -> Ready:
        """Makes a row's arguments, or the `binding` error that says why there are none."""
        text = row.text
        try:
            if not text.isascii():
                text.decode()
            fields = _fields(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            why = f"{row.place()} {row.problem or f'is not a JSON object: {error}'}"
            return Ready(row, row.index, b"", Error("binding", why), why)
        identity = self._identity(text, fields) if self._id_required or _ID in fields else None
        if identity is None:
            if self._id_required:
                why = f"the id path {self._id_path.text!r} finds no text or integer in this row"
                return Ready(row, row.index, b"", Error("binding", why))
            identity = row.index
        arguments = self._binder.arguments(text, fields)
        if isinstance(arguments, Unbound):
            return Ready(row, identity, b"", Error("binding", arguments.message))
        return Ready(row, identity, arguments)

    def _identity(self, text: bytes, fields: dict[str, Raw]) -> str | int | None:
        path = self._id_path
        found = fields.get(path.field, MISSING) if path.field is not None else path.find_in_fields(text, fields)
        if isinstance(found, Missing):
            return None
        try:
            identity: str | int = _text_or_integer(found)
        except msgspec.DecodeError:
            return None
        return identity
