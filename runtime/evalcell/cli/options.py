"""The options that commands share, and how their values are read."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import EnumType
from functools import wraps
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
from pydantic.fields import FieldInfo

from evalcell import configurations
from evalcell.configuration import Configuration, Operator, Said, amount, settings
from evalcell.datasets import Format
from evalcell.errors import UsageError
from evalcell.evaluator import Evaluator
from evalcell.settings import operator_limits
from evalcell_sandboxes import Limits, names

_Command = Callable[..., int]


@dataclass(frozen=True)
class Flags:
    """What every command about an evaluator was told."""

    path: Path
    operator: Operator
    id_path: str | None
    as_json: bool

    def evaluator(self) -> Evaluator:
        return Evaluator.from_file(self.path, operator_limits(self.operator))


def dataset_options(*, required: bool = False, help: str) -> Callable[[_Command], _Command]:  # noqa: A002
    """Adds `--data` and `--format`; the command gets them as `data` and `form`."""

    def add(command: _Command) -> _Command:
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


def evaluator_options(command: _Command) -> _Command:
    """Adds the evaluator and everything that says how it is bound and held; the command gets them as `Flags`."""

    @wraps(command)
    def with_flags(
        *,
        evaluator: Path,
        bind: Sequence[str],
        literals: Sequence[str],
        sandbox: str | None,
        said: dict[str, Any],
        id_path: str | None,
        as_json: bool,
        **own: Any,
    ) -> int:
        operator = configurations.operator(
            bind=_pairs(bind, "--bind", "reference=expected.text"),
            set={name: _literal(value) for name, value in _pairs(literals, "--set", "case=false").items()},
            sandbox=sandbox,
            **said,
        )
        return command(Flags(evaluator, operator, id_path, as_json), **own)

    gathered: _Command = with_flags
    for option in reversed(_options()):
        gathered = option(gathered)
    return gathered


def sandbox_option(command: _Command) -> _Command:
    """Adds `--sandbox`."""
    return click.option(
        "--sandbox",
        metavar="NAME",
        shell_complete=_complete_sandbox,
        help="The sandbox to run in: one of your own, as `evalcell sandboxes` keeps them, or a wall "
        f"({', '.join(names())}) instead of the one that is chosen.",
    )(command)


def _options() -> list[Callable[[_Command], _Command]]:
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
        sandbox_option,
        configuration_options(Operator, but=("wall",)),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text."),
    ]


def configuration_options(
    model: type[Configuration] = Configuration, *, only: Sequence[str] = (), but: Sequence[str] = ()
) -> Callable[[_Command], _Command]:
    """Adds a flag for every setting, or only some; the command gets what was said as `said`, by the settings' names."""
    wanted = [each for each in settings(model) if each[2].flag and each[0] not in but and (not only or each[0] in only)]

    def add(command: _Command) -> _Command:
        @wraps(command)
        def with_settings(*, dep_file: Path | None = None, **given: Any) -> int:
            said = {name: given.pop(name) for name, _, _ in wanted}
            if "dependencies" in said:
                said["dependencies"] = _dependencies(said["dependencies"], dep_file)
            if "limits" in said:
                pairs = _pairs(said["limits"], "--limit", "wall_seconds=2")
                said["limits"] = {name: _quantity(name, value) for name, value in pairs.items()}
            return command(said=said, **given)

        gathered: _Command = with_settings
        for name, field, said in reversed(wanted):
            if name == "dependencies":
                gathered = _DEP_FILE(gathered)
            gathered = _option(name, field, said)(gathered)
        return gathered

    return add


_DEP_FILE = click.option(
    "--dep-file",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="The same from a file, one requirement a line; '-' reads standard input.",
)


def _option(name: str, field: FieldInfo, said: Said) -> Callable[[_Command], _Command]:
    """The flag of a setting: what it takes follows from what the setting is."""
    many = name == "limits" or isinstance(field.default, tuple)
    about = [str(field.description), "Repeatable." if many else f"Default: {said.otherwise}."]
    if name == "limits":
        about.append(f"Keys: {', '.join(Limits.__struct_fields__)}.")
    return click.option(
        said.flag,
        name,
        multiple=many,
        type=_type(field),
        metavar=said.metavar,
        shell_complete=_complete_limit if name == "limits" else None,
        help=" ".join(about),
    )


def _type(field: FieldInfo) -> Any:
    kinds = get_args(field.annotation)
    for kind in kinds:
        if isinstance(kind, EnumType):
            return click.Choice([str(choice) for choice in list[Any](kind)])
    return click.INT if int in kinds else None


def _complete_limit(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [f"{name}=" for name in Limits.__struct_fields__ if name.startswith(incomplete)]


def _complete_sandbox(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in (*names(), *configurations.kept_names()) if name.startswith(incomplete)]


def _dependencies(said: Sequence[str], file: Path | None) -> tuple[str, ...]:
    """What the operator has the evaluator depend on. Anything but a package by name is refused.

    Raises:
        UsageError: A line is no requirement, or the file cannot be read.
    """
    if not said and file is None:
        return ()
    from evalcell_sandboxes.requirements import requirements

    try:
        found = tuple(line for text in said for line in _requirements(text))
    except ValueError as error:
        raise UsageError(f"--dep: {error}") from None
    if file is None:
        return found
    try:
        with click.open_file(str(file), encoding="utf-8") as text:
            return (*found, *requirements(text.read()))
    except UnicodeDecodeError:
        raise UsageError(f"--dep-file {str(file)!r} is not UTF-8 text.") from None
    except ValueError as error:
        raise UsageError(f"--dep-file {str(file)!r}: {error}") from None


def _requirements(text: str) -> tuple[str, ...]:
    """One requirement, or several that were pasted, one a line."""
    from evalcell_sandboxes.requirements import requirement, requirements

    return requirements(text) if "\n" in text else (requirement(text),)


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
    is_plain = text.replace(".", "", 1).isdecimal()
    found = amount(text) if is_plain or name.endswith("_bytes") else None
    if found is None:
        raise UsageError(
            f"--limit {name}={text} is not a number. Write for example: wall_seconds=2.5 or memory_bytes=256MiB"
        )
    return found
