"""The command line: parses, calls the core, and turns every way to fail into a message and an exit code."""

import json
import os
import sys
from importlib import import_module

import click

from evalcell.cli.check import check
from evalcell.cli.completion import completion
from evalcell.cli.doctor import UNAVAILABLE, doctor
from evalcell.cli.entry import INTERRUPTED
from evalcell.cli.new import new
from evalcell.cli.run import run
from evalcell.cli.text import printable, shown
from evalcell.errors import EvalcellError, EvaluatorError, OutputClosed
from evalcell.version import __version__
from evalcell_sandboxes import SandboxError, SandboxUnavailable

USAGE, CLOSED = 2, 141

_HELP = """Run anyone's evaluate(output, reference) safely on every row of an experiment.

\b
  evalcell new politeness                                        an evaluator to start from
  evalcell run politeness.py --data rows.csv --out results.jsonl
  evalcell check politeness.py --data rows.csv                   how it would run, and the first rows
  evalcell lock politeness.py                                    the exact packages it runs with
  evalcell sandboxes add text --dep scikit-learn                 packages, grants and limits under a name
  evalcell doctor                                                whether everything is there

\b
Exit codes: 0 every row was scored or skipped; 1 rows or aggregate failed; 2 the command or
the file makes no sense; 4 the sandbox is unavailable; 130 interrupted.
"""


class _Commands(click.Group):
    """The commands, of which those that few runs need are imported only when they are asked for."""

    later = {
        "lock": "evalcell.cli.lock",
        "layers": "evalcell.cli.layers",
        "sandboxes": "evalcell.cli.sandboxes",
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self.later})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.later:
            return super().get_command(ctx, cmd_name)
        found: click.Command = getattr(import_module(self.later[cmd_name]), cmd_name)
        return found


@click.group(
    cls=_Commands, help=_HELP, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="evalcell")
def cli() -> None:
    """Stands for the command itself; every verb is below it."""


for command in (run, check, new, doctor, completion):
    cli.add_command(command)


def main() -> int:
    """Runs the command and gives its exit code."""
    as_json = "--json" in sys.argv[1:]
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Abort as abort:
        code = _fail(abort.__context__ or abort, "Interrupted.", INTERRUPTED, as_json=as_json)
    except KeyboardInterrupt as interrupt:
        code = _fail(interrupt, "Interrupted.", INTERRUPTED, as_json=as_json)
    except click.ClickException as error:
        code = USAGE
        if as_json:
            _fail(error, error.format_message(), USAGE, as_json=True)
        else:
            error.show()
    except OutputClosed:
        # What is left in the buffer has nowhere to go, and Python would complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = CLOSED
    except OSError as error:
        code = _fail(
            error,
            f"{error.filename or 'Standard output'}: {error.strerror}.",
            USAGE,
            as_json=as_json and bool(error.filename),
        )
    except EvalcellError as error:
        code = _fail(error, str(error), USAGE, as_json=as_json)
    except SandboxError as error:
        code = _fail(error, str(error), UNAVAILABLE, as_json=as_json)
    return code if isinstance(code, int) else 0


def _fail(error: BaseException, message: str, code: int, *, as_json: bool) -> int:
    notes = getattr(error, "__notes__", [])
    if as_json:
        click.echo(json.dumps({"error": {"kind": _kind(error), "message": message, "notes": notes, **_left(error)}}))
        return code
    click.echo(f"{click.style('error:', fg='red', bold=True)} {printable(message, lines=True)}", err=True)
    for name, text in _left(error).items():
        line = printable(text.rstrip(), lines=True) if name == "traceback" else f"{name}: {shown(text)}"
        click.echo(line, err=True)
    for note in notes:
        click.echo(note, err=True)
    return code


def _left(error: BaseException) -> dict[str, str]:
    """What the evaluator's own code has left behind when it failed."""
    names = ("traceback", "stdout", "stderr")
    return {name: getattr(error, name) for name in names if isinstance(error, EvaluatorError) and getattr(error, name)}


def _kind(error: BaseException) -> str:
    match error:
        case EvaluatorError():
            return error.kind
        case SandboxUnavailable():
            return "unavailable"
        case SandboxError():
            return "infrastructure"
        case KeyboardInterrupt():
            return "interrupted"
    return "usage"
