"""`evalcell new`: a commented evaluator that runs at once, with rows to run it on."""

import re
from pathlib import Path
from shlex import quote

import click

from evalcell import examples
from evalcell.errors import UsageError

_ROWS = 3
_NAME = re.compile(r"\w[\w-]*")

_HELP = """Write NAME.py, a commented evaluator that runs at once, and NAME.jsonl, three rows to run it on.

\b
  evalcell new politeness
  evalcell new distance --from json_distance
"""


def _complete_example(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [name for name in examples.names() if name.startswith(incomplete)]


@click.command(help=_HELP, short_help="Write an evaluator to start from, with rows to try it on.")
@click.argument("name", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "example",
    default=examples.STARTER,
    show_default=True,
    metavar="EXAMPLE",
    shell_complete=_complete_example,
    help=f"Start from an example: {', '.join(examples.names())}.",
)
def new(name: Path, example: str) -> None:
    """Writes the two files and says what to do with them."""
    path = name.with_suffix("") if name.suffix in (".py", ".jsonl") else name
    if not _NAME.fullmatch(path.name):
        raise UsageError(f"{str(name)!r} is no name for an evaluator. Write letters, digits, '_' and '-'.")
    source, rows = examples.write(example, path, _ROWS)
    click.echo(f"Wrote {source} and {rows}. Next:\n")
    click.echo(f"  evalcell run {quote(str(source))} --data {quote(str(rows))}")
    click.echo(f"  evalcell check {quote(str(source))} --data {quote(str(rows))}")
