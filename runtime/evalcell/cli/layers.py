"""`evalcell layers`: the packages of evaluators, installed once and kept as layers of container images."""

import time
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import islice
from pathlib import Path
from typing import Any

import click
import msgspec

from evalcell import configurations
from evalcell.cli.options import configuration_options, sandbox_option
from evalcell.cli.screen import Screen
from evalcell.errors import UsageError
from evalcell.evaluator import Evaluator
from evalcell.manifest import Manifest
from evalcell.running import ready
from evalcell.settings import operator_limits, settle
from evalcell_sandboxes import SandboxUnavailable
from evalcell_sandboxes.container import prereqs, presence
from evalcell_sandboxes.container.engine import Engine
from evalcell_sandboxes.container.presence import Layer

_KEY_CHARACTERS = 12
_SHOWN = 4
_DAYS = 30.0
_DAY_SECONDS = 86_400.0
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))

_HELP = """Look after the layers that evaluators run on in containers. A layer of packages is built when a lock is first
needed and shared by every evaluator with the same lock; one of assets stands on it. They are kept until they
are removed, or until those that were not used for longest have to make room.

\b
  evalcell layers list
  evalcell layers build judge.py       so that the first run need not
  evalcell layers prune --days 30
"""


def _engine_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds what says which engine is meant; the command gets that."""

    @wraps(command)
    def with_engine(*, sandbox: str | None, said: dict[str, Any], **own: Any) -> int:
        settled = settle(Manifest(), configurations.operator(sandbox=sandbox, **said))
        engine = Engine(settled.site)
        if reason := prereqs.unavailable_reason(engine):
            raise SandboxUnavailable("container", reason)
        return command(engine=engine, **own)

    return sandbox_option(configuration_options(only=("engine",))(with_engine))


@click.group(help=_HELP, short_help="List, build and remove layers of packages.")
def layers() -> None:
    """Stands for the group; every verb is below it."""


@layers.command(name="list", short_help="Say which layers there are.")
@_engine_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list instead of text.")
def list_(engine: Engine, as_json: bool) -> int:  # noqa: FBT001 - a flag
    """Say which layers there are: size, age, last use, who uses them and what is in them; the one used last first."""
    found = presence.found(engine)
    if as_json:
        click.echo(msgspec.json.encode(found))
    elif found:
        _show(found)
    else:
        click.echo("There are no layers yet. One is built when an evaluator with dependencies is first run.")
    return 0


@layers.command(short_help="Build the layer of an evaluator without running it.")
@click.argument("evaluator", type=click.Path(path_type=Path))
@sandbox_option
@configuration_options(but=("wall",))
def build(evaluator: Path, sandbox: str | None, said: dict[str, Any]) -> int:
    """Build the layer that EVALUATOR needs, so that its first run starts at once and needs no network."""
    operator = configurations.operator(sandbox=sandbox, **said)
    with Screen(quiet=False) as screen:
        source = Evaluator.from_file(evaluator, operator_limits(operator))
        with ready(source, operator, started_ns=time.time_ns(), progress=screen.progress) as prepared:
            plan = prepared.planned.plan
        screen.stop()
    count = (bool(plan.program.lock) + bool(plan.program.assets)) if plan.sandbox == "container" else 0
    if not count:
        click.echo(f"{evaluator} runs in {plan.sandbox} without packages, so it needs no layer.")
    for used in islice(
        (layer for layer in presence.found(Engine(plan.site)) if evaluator.name in layer.evaluators), count
    ):
        click.echo(f"{_key(used)}  {_size(used)}  {_contents(used, shown=None)}")
    return 0


@layers.command(short_help="Remove layers.")
@click.argument("keys", nargs=-1, required=True, metavar="LAYER...")
@_engine_options
def rm(engine: Engine, keys: Sequence[str]) -> int:
    """Remove layers, each named by the beginning of its key as `layers list` shows it."""
    found = presence.found(engine)
    _remove(engine, [_chosen(key, found) for key in keys])
    return 0


@layers.command(short_help="Remove layers that were not used for long.")
@click.option("--days", type=click.FloatRange(min=0), default=_DAYS, show_default=True, help="For how long.")
@_engine_options
def prune(engine: Engine, days: float) -> int:
    """Remove the layers that nobody has used for so many days; with --days 0, all of them. One in use is kept."""
    _remove(engine, presence.unused(engine, days))
    return 0


def _chosen(key: str, found: list[Layer]) -> Layer:
    matching = [layer for layer in found if layer.key.startswith(key)]
    if len(matching) == 1:
        return matching[0]
    what = "is the beginning of several keys" if matching else "names no layer"
    raise UsageError(f"{key!r} {what}. See: evalcell layers list")


def _remove(engine: Engine, chosen: list[Layer]) -> None:
    freed = 0
    for layer in sorted(chosen, key=lambda layer: not layer.assets):  # what assets stand on cannot go before them
        try:
            presence.remove(engine, layer.key)
        except SandboxUnavailable as error:
            click.echo(f"kept     {_key(layer)}: {error.reason}", err=True)
            continue
        freed += layer.size_bytes
        click.echo(f"removed  {_key(layer)}  {_size(layer)}")
    click.echo(f"{freed / 1e6:,.0f} MB freed.")


def _show(found: list[Layer]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("layer", "size", "age", "last used", "evaluators", "holds"):
        table.add_column(heading, overflow="fold", justify="right" if heading in ("size", "age") else "left")
    for layer in found:
        used = "never" if layer.used is None else f"{_ago(layer.used)} ago"
        table.add_row(_key(layer), _size(layer), _ago(layer.built), used, ", ".join(layer.evaluators), _contents(layer))
    Console(highlight=False, emoji=False, markup=False).print(table)
    click.echo(f"{sum(layer.size_bytes for layer in found) / 1e6:,.0f} MB in all.")


def _contents(layer: Layer, shown: int | None = _SHOWN) -> str:
    """The packages that a layer holds, or the assets of an evaluator; only so many of them."""
    held, what = (layer.assets, "assets: ") if layer.assets else (layer.packages, "")
    more = f" and {len(held) - shown} more" if shown is not None and len(held) > shown else ""
    return f"{what}{', '.join(held[:shown])}{more}"


def _key(layer: Layer) -> str:
    return layer.key[:_KEY_CHARACTERS]


def _size(layer: Layer) -> str:
    return f"{layer.size_bytes / 1e6:,.0f} MB"


def _ago(when: float) -> str:
    seconds = max(0.0, time.time() - when)
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return f"{seconds // size:.0f} {unit}"
