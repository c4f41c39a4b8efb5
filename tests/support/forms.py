"""One case in each language that a wall may speak, so that a suite holds for all of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest
from walls import PYTHON_WALLS, TYPESCRIPT_WALLS

from evalcell_sandboxes import Language, Program, Sandbox

_T = TypeVar("_T")
_ENDINGS = {Language.PYTHON: ".py", Language.TYPESCRIPT: ".ts"}


@dataclass(frozen=True)
class Forms(Generic[_T]):
    """What a case is in each language: its source mostly, or what the language says there. Sources can be added up."""

    python: _T
    typescript: _T

    def of(self, wall: Sandbox) -> _T:
        """The form for this wall."""
        found: _T = getattr(self, language_of(wall))
        return found

    def __add__(self, other: "Forms[Any]") -> "Forms[Any]":
        return Forms(self.python + other.python, self.typescript + other.typescript)

    def __repr__(self) -> str:
        """What the test of a parameter is called."""
        return str(self.python)


def evaluating(python: str, typescript: str) -> Forms[str]:
    """An `evaluate` with that body; in Python it takes one line or begins with a line feed."""
    return Forms(
        f"def evaluate(output, reference=None):\n    {python}\n",
        f"export function evaluate({{ output, reference }}: any) {{\n  {typescript}\n}}\n",
    )


def language_of(wall: Sandbox) -> Language:
    """The language that a suite speaks with a wall: the fake speaks both, and its functions are in Python."""
    return Language.PYTHON if Language.PYTHON in wall.languages else Language.TYPESCRIPT


def named(wall: Sandbox, stem: str = "evaluator") -> dict[str, Any]:
    """The fields of a program that say what it is written in."""
    language = language_of(wall)
    return {"filename": stem + _ENDINGS[language], "language": language}


def program(wall: Sandbox, source: Forms[str] | str) -> Program:
    """The source in the wall's language."""
    return Program(source=source.of(wall) if isinstance(source, Forms) else source, **named(wall))


def each(
    names: str, *, python: Sequence[Any] = (), typescript: Sequence[Any] = (), fake: bool = False
) -> pytest.MarkDecorator:
    """Parametrizes a test of every wall, or of the fake as well, over cases that are of that wall's language."""
    pairs = [(wall, case) for wall in (*PYTHON_WALLS, *(["fake"] if fake else [])) for case in python]
    pairs += [(wall, case) for wall in TYPESCRIPT_WALLS for case in typescript]
    return pytest.mark.parametrize(("wall", *names.split(", ")), [_of(*pair) for pair in pairs], indirect=["wall"])


def _of(wall: str, case: Any) -> Any:
    """A case for one wall, called as the case is."""
    values = getattr(case, "values", case if isinstance(case, tuple) else (case,))
    name = getattr(case, "id", None) or " ".join(map(str, values))
    return pytest.param(wall, *values, id=f"{wall}-{name}")


only_in_python = pytest.mark.parametrize("wall", PYTHON_WALLS, indirect=True)
"""For a test of what there is in that language alone."""
