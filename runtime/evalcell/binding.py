"""Binds `evaluate`'s parameters to a row: each one to a path, a literal, or the function's own default."""

from collections.abc import Mapping, Sequence
from operator import itemgetter

import msgspec
from msgspec import Raw, Struct

from evalcell.errors import EvaluatorError, UsageError, did_you_mean
from evalcell.paths import MISSING, Missing, Path, to_field
from evalcell.spelling import SPELLINGS, Spelling
from evalcell_sandboxes import Hook, Kind, Language, Parameter

_MOST_BINDINGS = 64
_MOST_ARGUMENT_BYTES = 64 * 1024**2
_MOST_PLAIN_BYTES = _MOST_ARGUMENT_BYTES // _MOST_BINDINGS
"""A row no larger than this cannot make arguments that are too large, unless its bindings overlap."""


class Binding(Struct, frozen=True):
    """Where one parameter's argument comes from. `optional` when the function has a default to fall back on."""

    parameter: str
    path: str | None = None
    literal: bytes | None = None
    optional: bool = False


class Unbound(Struct, frozen=True):
    """Why a row's arguments could not be made."""

    message: str


class Binder:
    """Compiled bindings: a raw row in, the JSON text of its arguments out."""

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self._paths = [
            (msgspec.json.encode(binding.parameter) + b":", binding, Path(binding.path))
            for binding in bindings
            if binding.path is not None
        ]
        self._literals = [
            msgspec.json.encode(binding.parameter) + b":" + binding.literal
            for binding in bindings
            if binding.literal is not None
        ]
        # Most evaluators take a few fields as they are, and then one format makes the arguments of a row.
        fields = [path.field for _, _, path in self._paths if path.field is not None]
        self._pick = itemgetter(*fields) if fields and len(fields) == len(self._paths) else None
        self._form = b"{%b}" % b",".join(
            [literal.replace(b"%", b"%%") for literal in self._literals]
            + [prefix.replace(b"%", b"%%") + b"%b" for prefix, _, _ in self._paths]
        )

    def arguments(self, row: bytes, fields: dict[str, Raw]) -> bytes | Unbound:
        """The arguments for one row; its top level is decoded already. What is not bound does not get out."""
        if self._pick is None or len(row) > _MOST_PLAIN_BYTES:
            return self._found(row, fields)
        try:
            arguments: bytes = self._form % self._pick(fields)
        except KeyError:  # a default is to be used, or an error to be made
            return self._found(row, fields)
        return arguments

    def _found(self, row: bytes, fields: dict[str, Raw]) -> bytes | Unbound:
        parts = self._literals.copy()
        size = 0
        for prefix, binding, path in self._paths:
            value = fields.get(path.field, MISSING) if path.field is not None else path.find_in_fields(row, fields)
            if not isinstance(value, Missing):
                parts.append(prefix + value)
                size += len(parts[-1])
                if size > _MOST_ARGUMENT_BYTES:
                    return Unbound(f"the arguments of this row are larger than {_MOST_ARGUMENT_BYTES} bytes")
            elif not binding.optional:
                return Unbound(_missing(binding, fields))
        return b"{" + b",".join(parts) + b"}"


def _missing(binding: Binding, fields: Mapping[str, Raw]) -> str:
    known = list(fields)[:20]
    top = (binding.path or "").removeprefix("$").lstrip(".").partition(".")[0].partition("[")[0]
    hint = did_you_mean(top, known) if top not in fields else ""
    return (
        f"parameter {binding.parameter!r} is bound to {binding.path!r}, which this row does not have; "
        f"its fields are {', '.join(map(repr, known)) or 'none'}.{hint}"
    )


def missing_in(bindings: Sequence[Binding], row: bytes) -> list[str]:
    """For each required parameter without a value in this row, the sentence that says so."""
    try:
        row.decode()
        fields = msgspec.json.decode(row, type=dict[str, Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return [
        _missing(binding, fields)
        for binding in bindings
        if binding.path is not None
        and not binding.optional
        and Path(binding.path).find_in_fields(row, fields) is MISSING
    ]


def bind(
    evaluate: Hook,
    paths: Mapping[str, str],
    literals: Mapping[str, object],
    spelling: Spelling = SPELLINGS[Language.PYTHON],
) -> tuple[Binding, ...]:
    """Decides where every parameter's argument comes from. A parameter that nobody bound takes the field of its name.

    Raises:
        EvaluatorError: `evaluate` has a signature that cannot be called with named values.
        UsageError: A binding names no parameter, is given twice, or holds a path that cannot be read.
    """
    parameters = _parameters(evaluate, spelling)
    takes_any = any(parameter.kind is Kind.ANY_KEYWORD for parameter in parameters)
    named = [p for p in parameters if p.kind not in (Kind.ANY_KEYWORD, Kind.VARIADIC)]
    known = [parameter.name for parameter in named]
    for name in (*paths, *literals):
        if name not in known and not takes_any:
            listed = ", ".join(map(repr, known)) or "none"
            raise UsageError(f"evaluate has no parameter {name!r}; it has {listed}.{did_you_mean(name, known)}")
    if both := sorted(set(paths) & set(literals)):
        raise UsageError(f"Parameter {both[0]!r} is bound to a path and set to a literal. Keep one of the two.")
    bindings = [_binding(parameter, paths, literals) for parameter in named]
    extra = [name for name in (*paths, *literals) if name not in known]
    bindings += [_binding(Parameter(name), paths, literals) for name in extra]
    if len(bindings) > _MOST_BINDINGS:
        raise EvaluatorError("signature", f"evaluate binds {len(bindings)} parameters; {_MOST_BINDINGS} are allowed.")
    if not bindings:
        raise EvaluatorError(
            "signature",
            f"evaluate (line {evaluate.line}) takes nothing from the row by name, so every row would score alike. "
            f"Name parameters, or pass fields to {spelling.others} with --bind NAME=PATH.",
        )
    for binding in bindings:
        if binding.path is not None:
            Path(binding.path)
    return tuple(bindings)


def _parameters(evaluate: Hook, spelling: Spelling) -> tuple[Parameter, ...]:
    if evaluate.parameters is None:
        raise EvaluatorError(
            "signature",
            f"evaluate (line {evaluate.line}) {spelling.unreadable}, so its parameters cannot be read. "
            f"Define it with {spelling.evaluate}.",
        )
    return evaluate.parameters


def _binding(parameter: Parameter, paths: Mapping[str, str], literals: Mapping[str, object]) -> Binding:
    name = parameter.name
    if name in literals:
        return Binding(name, literal=msgspec.json.encode(literals[name]))
    return Binding(name, path=paths[name] if name in paths else to_field(name), optional=not parameter.required)
