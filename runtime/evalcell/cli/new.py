"""`evalcell new`: a commented evaluator that runs at once, with rows to run it on."""

import re
from pathlib import Path
from shlex import quote

import click

from evalcell import examples
from evalcell.errors import UsageError
from evalcell.evaluator import SUFFIXES
from evalcell_sandboxes import Language

_ROWS = 3
_NAME = re.compile(r"\w[\w-]*")

_HELP = """Write NAME.py, a commented evaluator that runs at once, and NAME.jsonl, three rows to run it on.

With --typescript it is NAME.ts, with evalcell.d.ts beside it, from which editors know the types.

\b
  evalcell new politeness
  evalcell new distance --from json_distance
  evalcell new distance --from json_distance --typescript
"""


def _language(*, typescript: bool) -> Language:
    return Language.TYPESCRIPT if typescript else Language.PYTHON


def _complete_example(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    known = examples.names(_language(typescript=bool(context.params.get("typescript"))))
    return [name for name in known if name.startswith(incomplete)]


@click.command(help=_HELP, short_help="Write an evaluator to start from, with rows to try it on.")
@click.argument("name", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "example",
    default=examples.STARTER,
    show_default=True,
    metavar="EXAMPLE",
    shell_complete=_complete_example,
    help=f"Start from an example: {', '.join(examples.names())}. In TypeScript: "
    f"{', '.join(examples.names(Language.TYPESCRIPT))}.",
)
@click.option("--typescript", is_flag=True, help="Write it in TypeScript. So does a NAME that ends in .ts.")
def new(name: Path, example: str, typescript: bool) -> None:  # noqa: FBT001 - a flag
    """Writes the files and says what to do with them."""
    language = _language(typescript=typescript or name.suffix == SUFFIXES[Language.TYPESCRIPT])
    path = name.with_suffix("") if name.suffix in (*SUFFIXES.values(), ".jsonl") else name
    if not _NAME.fullmatch(path.name):
        raise UsageError(f"{str(name)!r} is no name for an evaluator. Write letters, digits, '_' and '-'.")
    source, rows = examples.write(example, path, _ROWS, language)
    click.echo(f"Wrote {source} and {rows}. Next:\n")
    click.echo(f"  evalcell run {quote(str(source))} --data {quote(str(rows))}")
    click.echo(f"  evalcell check {quote(str(source))} --data {quote(str(rows))}")
