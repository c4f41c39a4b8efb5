"""`evalcell sandboxes`: what an operator has settled about sandboxes, kept under names."""

import json
from collections.abc import Sequence
from typing import Any

import click

from evalcell import configurations
from evalcell.cli.options import configuration_options
from evalcell.cli.screen import Screen
from evalcell.configuration import Configuration, Named, settings
from evalcell.errors import UsageError

_HELP = """Look after sandboxes of your own: packages, grants and limits under a name, for every evaluator that is run
in it. Evaluators that share a sandbox share its layer of packages, which stays warm.

\b
  evalcell sandboxes add text --dep scikit-learn --dep rapidfuzz --limit wall_seconds=5
  evalcell sandboxes build text            so that the first run need not
  evalcell run judge.py --data rows.csv --sandbox text
"""


@click.group(help=_HELP, short_help="Keep sandboxes of your own under names.")
def sandboxes() -> None:
    """Stands for the group; every verb is below it."""


@sandboxes.command(short_help="Keep a sandbox under a name.")
@click.argument("name")
@configuration_options()
@click.option("--replace", is_flag=True, help="Replace the sandbox of that name.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def add(name: str, said: dict[str, Any], replace: bool, as_json: bool) -> int:  # noqa: FBT001 - flags
    """Keep a sandbox under NAME. What it grants, every evaluator that is run in it is granted. Of a variable only the
    name is kept: its value is read when a run starts.
    """
    configuration = Configuration(**said)
    configurations.add(name, configuration, replace=replace)
    return _show(Named(name, configuration), as_json=as_json)


@sandboxes.command(name="list", short_help="Say which sandboxes there are.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def list_(as_json: bool) -> int:  # noqa: FBT001 - a flag
    """Say which sandboxes are kept, and what each is about."""
    found = list(configurations.found())
    good = [named for named in found if isinstance(named, Named)]
    if as_json:
        click.echo(json.dumps({named.name: named.configuration.said() for named in good}))
    for named in good if not as_json else ():
        click.echo(f"{click.style(named.name, bold=True)}  {'; '.join(_lines(named.configuration))}")
    if not found and not as_json:
        click.echo("There are no sandboxes of yours yet. Add one: evalcell sandboxes add NAME --dep scikit-learn")
    for problem in found:
        if isinstance(problem, UsageError):
            click.echo(f"{click.style('error:', fg='red', bold=True)} {problem}", err=True)
    return 0 if len(good) == len(found) else 2


@sandboxes.command(short_help="Show what is kept about a sandbox.")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def show(name: str, as_json: bool) -> int:  # noqa: FBT001 - a flag
    """Show what is kept about the sandbox NAME. How an evaluator would run in it, `evalcell check --sandbox` says."""
    return _show(configurations.find(name), as_json=as_json)


@sandboxes.command(short_help="Forget sandboxes.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def rm(names: Sequence[str]) -> int:
    """Forget sandboxes. Their layers stay for others that need the same packages, until they are pruned."""
    for name in names:
        configurations.remove(name)
        click.echo(f"removed  {name}")
    return 0


@sandboxes.command(short_help="Build the layer of a sandbox ahead of its first run.")
@click.argument("name")
def build(name: str) -> int:
    """Resolve the packages of the sandbox NAME and build their layer, so that no run has to wait for it."""
    from evalcell.building import build_layer  # which needs the engine's client, as the other verbs do not

    named = configurations.find(name)
    with Screen(quiet=False) as screen:
        packages = build_layer(named, screen.progress)
        screen.stop()
    if packages:
        click.echo(f"{name}: {', '.join(packages)}")
    else:
        click.echo(f"{name} has no packages of its own, so it needs no layer.")
    return 0


def _show(named: Named, *, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps({"name": named.name, **named.configuration.said()}))
        return 0
    click.secho(named.name, bold=True)
    for line in _lines(named.configuration):
        click.echo(f"  {line}")
    return 0


def _lines(configuration: Configuration) -> list[str]:
    """What was said, a phrase for each setting."""
    said = configuration.said()
    return [f"{name} {_phrase(said[name])}" for name, _, _ in settings(Configuration) if name in said]


def _phrase(value: Any) -> str:
    match value:
        case dict():
            return ", ".join(f"{key}={number}" for key, number in value.items())
        case list():
            return ", ".join(value)
    return str(value)
