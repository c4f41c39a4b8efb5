"""What parsing a source tells about it. Nothing here was learnt by executing it."""

from enum import StrEnum
from typing import Any

from msgspec import Struct


class Kind(StrEnum):
    """How an argument reaches a parameter."""

    POSITIONAL_ONLY = "positional_only"
    ORDINARY = "ordinary"
    VARIADIC = "variadic"
    KEYWORD_ONLY = "keyword_only"
    ANY_KEYWORD = "any_keyword"


class Parameter(Struct, frozen=True):
    """One parameter of a hook; `default` is the source text of its default, None where it has none."""

    name: str
    kind: Kind = Kind.ORDINARY
    default: str | None = None

    @property
    def required(self) -> bool:
        return self.default is None and self.kind not in (Kind.VARIADIC, Kind.ANY_KEYWORD)


class Hook(Struct, frozen=True):
    """A function of the evaluator that the runtime may call. `parameters` is None where they cannot be read."""

    name: str
    line: int
    is_async: bool = False
    parameters: tuple[Parameter, ...] | None = None

    @property
    def takes_one_argument(self) -> bool:
        """Whether it can be called with one positional argument, as far as its parameters tell."""
        if self.parameters is None:
            return True
        positional = [p for p in self.parameters if p.kind in (Kind.POSITIONAL_ONLY, Kind.ORDINARY)]
        room = bool(positional) or any(p.kind is Kind.VARIADIC for p in self.parameters)
        needed = [p for p in self.parameters if p.required and p not in positional[:1]]
        return room and not needed


class Import(Struct, frozen=True):
    """A module the source names. `optional` where the source is ready for its absence.

    `standard` says that it belongs to the language's standard library, `present` that this sandbox has it.
    """

    module: str
    line: int
    optional: bool = False
    standard: bool = False
    present: bool = False


class Block(Struct, frozen=True):
    """The inline metadata of the file: its table, or why it could not be read."""

    line: int
    table: dict[str, Any] | None = None
    error: str | None = None


class SyntaxProblem(Struct, frozen=True):
    """Why the source does not parse, and where."""

    message: str
    line: int | None = None
    column: int | None = None
    text: str = ""


class TypeProblem(Struct, frozen=True):
    """What a checker of types says of a source, and where. It does not keep the source from running."""

    message: str
    line: int
    column: int
    code: str = ""


class Description(Struct, frozen=True):
    """A source that parses: its hooks, its imports, its metadata and the language version that parsed it."""

    hooks: tuple[Hook, ...]
    imports: tuple[Import, ...]
    python: str = ""
    block: Block | None = None

    def hook(self, name: str) -> Hook | None:
        return next((hook for hook in self.hooks if hook.name == name), None)
