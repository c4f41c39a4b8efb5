"""The options that commands share, and how their values are read."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
import msgspec

from evalcell.datasets import Format
from evalcell.errors import UsageError
from evalcell.evaluator import Evaluator
from evalcell.running import parsing_limits
from evalcell.settings import FIT_ROWS, MOST_SEEDS, Operator
from evalcell_sandboxes import Isolation, Limits, names

_UNITS = {"": 1, "k": 10**3, "ki": 2**10, "m": 10**6, "mi": 2**20, "g": 10**9, "gi": 2**30}
_QUANTITY = re.compile(r"([0-9]*\.?[0-9]+)\s*([a-z]*)", re.IGNORECASE)


@dataclass(frozen=True)
class Flags:
    """What every command about an evaluator was told."""

    path: Path
    operator: Operator
    id_path: str | None
    workers: int | None
    seed: int
    as_json: bool

    def evaluator(self) -> Evaluator:
        return Evaluator.from_file(self.path, parsing_limits(self.operator))


def dataset_options(*, required: bool = False, help: str) -> Callable[[Callable[..., int]], Callable[..., int]]:  # noqa: A002
    """Adds `--data` and `--format`; the command gets them as `data` and `form`."""

    def add(command: Callable[..., int]) -> Callable[..., int]:
        form = click.option(
            "--format",
            "form",
            type=click.Choice([str(known) for known in Format]),
            callback=lambda _context, _option, value: None if value is None else Format(value),
            help="What the dataset is written in, where its name and its beginning do not tell.",
        )
        data = click.option("--data", required=required, type=click.Path(allow_dash=True), metavar="FILE", help=help)
        return data(form(command))

    return add


def evaluator_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the evaluator and everything that says how it is bound and held; the command gets them as `Flags`."""

    @wraps(command)
    def with_flags(
        *,
        evaluator: Path,
        bind: Sequence[str],
        literals: Sequence[str],
        isolation: str | None,
        limits: Sequence[str],
        sandbox: str | None,
        fit_rows: int | None,
        dep: Sequence[str],
        dep_file: Path | None,
        id_path: str | None,
        workers: int | None,
        seed: int,
        as_json: bool,
        **own: Any,
    ) -> int:
        operator = Operator(
            bind=_pairs(bind, "--bind", "reference=expected.text"),
            set={name: _literal(value) for name, value in _pairs(literals, "--set", "case=false").items()},
            isolation=Isolation(isolation) if isolation else None,
            limits={
                name: _quantity(name, value) for name, value in _pairs(limits, "--limit", "wall_seconds=2").items()
            },
            sandbox=sandbox,
            fit_rows=fit_rows,
            dependencies=dependencies_of(dep, dep_file),
        )
        return command(Flags(evaluator, operator, id_path, workers, seed, as_json), **own)

    gathered: Callable[..., int] = with_flags
    for option in reversed(_options()):
        gathered = option(gathered)
    return gathered


def _complete_limit(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [f"{name}=" for name in Limits.__struct_fields__ if name.startswith(incomplete)]


def _complete_sandbox(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in names() if name.startswith(incomplete)]


def _options() -> list[Callable[[Callable[..., int]], Callable[..., int]]]:
    limits = ", ".join(Limits.__struct_fields__)
    return [
        click.argument("evaluator", type=click.Path(path_type=Path)),
        click.option(
            "--bind",
            multiple=True,
            metavar="NAME=PATH",
            help="Bind a parameter to a path into the row, such as output.items[0].id. Repeatable.",
        ),
        click.option(
            "--set",
            "literals",
            multiple=True,
            metavar="NAME=VALUE",
            help="Fix a parameter to a value: JSON, or else taken as text. Repeatable.",
        ),
        click.option(
            "--id", "id_path", metavar="PATH", help="Where a row's id is. Default: its field 'id', else its index."
        ),
        click.option(
            "--isolation",
            type=click.Choice([str(i) for i in Isolation]),
            help="'row' (default): every row starts fresh. 'evaluator': rows share state.",
        ),
        click.option(
            "--limit",
            "limits",
            multiple=True,
            metavar="KEY=VALUE",
            shell_complete=_complete_limit,
            help=f"Set a limit, such as wall_seconds=2 or memory_bytes=256MiB. Repeatable. Keys: {limits}.",
        ),
        click.option(
            "--sandbox",
            metavar="NAME",
            shell_complete=_complete_sandbox,
            help="Demand a sandbox instead of the one that is chosen.",
        ),
        click.option(
            "--fit-rows",
            type=click.IntRange(min=1),
            metavar="N",
            help=f"Call the file's fit with the first N rows, however many are scored. "
            f"Default: what the file says, else {FIT_ROWS:,}.",
        ),
        dependency_options,
        click.option(
            "--workers", type=click.IntRange(min=1), metavar="N", help="Worker processes. Default: one a core."
        ),
        click.option(
            "--seed",
            type=click.IntRange(0, MOST_SEEDS - 1),
            default=0,
            metavar="N",
            help="What all randomness in the sandbox starts from. Default: 0.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text."),
    ]


def dependency_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds `--dep` and `--dep-file`, which `dependencies_of` reads."""
    file = click.option(
        "--dep-file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The same from a file, one requirement a line.",
    )
    lines = click.option(
        "--dep",
        multiple=True,
        metavar="REQUIREMENT",
        help="A package that the evaluator needs, such as 'scikit-learn>=1.5', besides what its file names. "
        "Repeatable. Packages run in a container.",
    )
    return lines(file(command))


def dependencies_of(lines: Sequence[str], file: Path | None) -> tuple[str, ...]:
    """What the operator has the evaluator depend on. Anything but a package by name is refused.

    Raises:
        UsageError: A line is no requirement, or the file cannot be read.
    """
    if not lines and file is None:
        return ()
    from evalcell_sandboxes.requirements import requirement, requirements

    try:
        said = tuple(map(requirement, lines))
    except ValueError as error:
        raise UsageError(f"--dep: {error}") from None
    if file is None:
        return said
    try:
        return (*said, *requirements(file.read_text(encoding="utf-8")))
    except UnicodeDecodeError:
        raise UsageError(f"--dep-file {str(file)!r} is not UTF-8 text.") from None
    except ValueError as error:
        raise UsageError(f"--dep-file {str(file)!r}: {error}") from None


def _pairs(texts: Sequence[str], flag: str, example: str) -> dict[str, str]:
    return dict(_pair(text, flag, example) for text in texts)


def _pair(text: str, flag: str, example: str) -> tuple[str, str]:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{flag} {text!r} is not valid UTF-8.") from None
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise UsageError(f"{flag} {text!r} is not NAME=VALUE. Write for example: {flag} {example}")
    return name.strip(), value.strip()


def _literal(text: str) -> Any:
    """The value that JSON makes of the text, or the text. JSON has no NaN and no infinity, so those are text."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        msgspec.msgpack.encode(value)
    except OverflowError:
        raise UsageError(f"--set: {text[:40]!r} holds an integer of more than 64 bits.") from None
    except (ValueError, RecursionError):
        return text
    return value


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _quantity(name: str, text: str) -> float:
    match = _QUANTITY.fullmatch(text)
    unit = match[2].lower().removesuffix("b") if match and name.endswith("_bytes") else match[2] if match else None
    if match is None or unit not in _UNITS or (unit and not name.endswith("_bytes")):
        raise UsageError(
            f"--limit {name}={text} is not a number. Write for example: wall_seconds=2.5 or memory_bytes=256MiB"
        )
    return float(match[1]) * _UNITS[unit]
