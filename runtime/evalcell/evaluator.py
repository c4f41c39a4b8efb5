"""An evaluator: one source file, what parsing it told, and what it asks for."""

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from evalcell.errors import EvaluatorError, UsageError, did_you_mean_file
from evalcell.manifest import Manifest
from evalcell.output import Output
from evalcell.spelling import SPELLINGS, Spelling
from evalcell_sandboxes import (
    Asset,
    Crashed,
    Description,
    Exceeded,
    Hook,
    Isolation,
    Language,
    Limits,
    Network,
    Program,
    SyntaxProblem,
)

_DEFAULT_LIMITS = Limits()
_CALLED_WITH = {"fit": "rows", "aggregate": "results"}
SUFFIXES = {Language.PYTHON: ".py", Language.TYPESCRIPT: ".ts"}
"""How the name of an evaluator's file ends."""
_LANGUAGES = {suffix: language for language, suffix in SUFFIXES.items()}


@dataclass(frozen=True)
class Evaluator:
    """The text of an evaluator, before anybody has looked into it. Making one executes and parses nothing."""

    name: str
    filename: str
    text: str
    language: Language
    path: Path | None = None
    """Where its file lies, if it has one."""

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], limits: Limits = _DEFAULT_LIMITS) -> "Evaluator":
        """Reads an evaluator's file, named as the file is.

        Raises:
            UsageError: It is not there, not a file, not text, or too large.
        """
        path = Path(path)
        language = _LANGUAGES.get(path.suffix)
        if language is None:
            raise UsageError(f"{str(path)!r} is not an evaluator: its name must end in .py or .ts.")
        content = _content(path, limits)
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UsageError(f"{str(path)!r} is not UTF-8 text: {error.reason} at byte {error.start}.") from None
        return cls(_printable_name(path.stem), _printable_name(path.name), text, language, path)

    @classmethod
    def from_source(cls, text: str, *, name: str = "evaluator", language: str = "python") -> "Evaluator":
        """An evaluator out of its source text; records carry its name.

        Raises:
            UsageError: There is no such language, or the source is no text.
        """
        if not isinstance(text, str) or not isinstance(name, str):
            raise UsageError("The source of an evaluator is text, and so is its name.")
        if language not in set(Language):
            listed = ", ".join(repr(str(known)) for known in Language)
            raise UsageError(f"Evaluators are written in {listed}, not in {language!r}.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"The source holds a lone surrogate at character {error.start}, and is no text.") from None
        name = _printable_name(name)
        return cls(name, name + SUFFIXES[Language(language)], text.removeprefix("\ufeff"), Language(language))

    @property
    def spelling(self) -> Spelling:
        """How its parts are written in its language."""
        return SPELLINGS[self.language]

    def program(self, lock: str = "", assets: tuple[Asset, ...] = ()) -> Program:
        """What is run behind a wall, with the lock of the packages and the files that it needs there."""
        return Program(source=self.text, filename=self.filename, language=self.language, lock=lock, assets=assets)

    def beside(self, module: str) -> str | None:
        """The file beside the evaluator's own that a plain Python would import by this name, if there is one."""
        if self.path is None or not module.isidentifier():  # nor else would it be a file's name, or in that directory
            return None
        files = (f"{module}.py", f"{module}/__init__.py")
        return next((file for file in files if file != self.path.name and (self.path.parent / file).is_file()), None)


@dataclass(frozen=True)
class Understood:
    """An evaluator that parses and has an `evaluate`: what it declares, and what it asks for."""

    evaluator: Evaluator
    description: Description
    manifest: Manifest
    evaluate: Hook


def _content(path: Path, limits: Limits) -> bytes:
    try:
        # Opening a pipe, or reading from a device, may never come back.
        if not (stat.S_ISREG(mode := path.stat().st_mode) or stat.S_ISDIR(mode)):
            raise UsageError(f"{str(path)!r} is not an evaluator: it is a pipe, a socket or a device, and no file.")
        with path.open("rb") as file:
            content = file.read(limits.source_bytes + 1)
    except FileNotFoundError:
        raise UsageError(f"There is no file {str(path)!r}.{did_you_mean_file(path)}") from None
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    if len(content) > limits.source_bytes:
        raise UsageError(
            f"{str(path)!r} is larger than {limits.source_bytes} bytes, the limit for a source. "
            "Raise it with --limit source_bytes=N."
        )
    return content


def _printable_name(name: str) -> str:
    """A file's name may hold bytes that are no text; in records and tracebacks they are spelled out."""
    return name.encode("utf-8", "backslashreplace").decode()


def understand(evaluator: Evaluator, described: Description | SyntaxProblem | Exceeded | Crashed) -> Understood:
    """Puts an evaluator and what the guest said about it together.

    Raises:
        EvaluatorError: It does not parse, has no `evaluate`, has a hook that cannot be called, or its metadata makes
            no sense.
    """
    if isinstance(described, SyntaxProblem):
        raise EvaluatorError("syntax", _syntax_message(evaluator, described))
    if not isinstance(described, Description):
        raise EvaluatorError("syntax", f"{evaluator.filename} could not be parsed within bounds: {described.message}.")
    evaluate = described.hook("evaluate")
    if evaluate is None:
        raise EvaluatorError(
            "signature",
            f"{evaluator.filename} defines no evaluate at its top level. Add {evaluator.spelling.evaluate}.",
        )
    for name, argument in _CALLED_WITH.items():
        hook = described.hook(name)
        if hook is not None and not hook.takes_one_argument:
            raise EvaluatorError(
                "signature",
                f"Line {hook.line}: {name} is called with one argument, the list of {argument}, "
                f"and its parameters do not allow that. Write {getattr(evaluator.spelling, name)}.",
            )
    manifest = _manifest(described)
    if manifest.requires_python and evaluator.language is not Language.PYTHON:
        raise EvaluatorError("metadata", "The file asks for a Python, and is none: remove requires-python.")
    return Understood(evaluator, described, manifest, evaluate)


def _manifest(description: Description) -> Manifest:
    block = description.block
    if block is None:
        return Manifest()
    if block.table is None:
        raise EvaluatorError("metadata", f"The metadata block on line {block.line} cannot be read: {block.error}.")
    from evalcell.blocks import read  # pydantic is slow to import, and most files have no block

    return read(block.table, block.line)


def _syntax_message(evaluator: Evaluator, problem: SyntaxProblem) -> str:
    if problem.line is None:
        return f"{evaluator.filename}: {problem.message}"
    caret = ""
    if problem.text and problem.column is not None and problem.column <= len(problem.text) + 1:
        caret = f"\n    {problem.text}\n    {' ' * (problem.column - 1)}^"
    return f"{evaluator.filename}, line {problem.line}: {problem.message}{caret}"


def program_digest(
    program: Program,
    guest_identity: str,
    isolation: Isolation,
    *,
    network: Network = Network.NONE,
    env: Sequence[str] = (),
) -> str:
    """Names everything that decides what the code does: source, lock, assets, the guest, how rows share state, and
    what was granted, by name: what a variable holds, or the network says, is not part of it.
    """
    granted = () if network is Network.NONE and not env else (network, sorted(env))
    return _digest(program.source, program.language, program.lock, program.assets, guest_identity, isolation, *granted)


def version_digest(
    program: str, output: Output, literals: dict[str, object], limits: Limits, fit_rows: int | None = None
) -> str:
    """Names everything that decides a score: the program, what its output means, fixed arguments, limits, and on how
    many rows it is fitted if it is.
    """
    fitted = () if fit_rows is None else (fit_rows,)
    return _digest(program, output, literals, limits, *fitted)


def _digest(*parts: object) -> str:
    canonical = msgspec.json.encode([_printable(part) for part in parts], order="sorted")
    return hashlib.sha256(canonical).hexdigest()[:16]


def _printable(part: object) -> object:
    """JSON has no infinity, and msgspec writes null for it: bounds are told apart by their text."""
    if isinstance(part, Output):
        return [repr(getattr(part, name)) for name in part.__struct_fields__]
    return part
