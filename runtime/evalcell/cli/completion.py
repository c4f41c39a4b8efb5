"""`evalcell completion`: what a shell needs to complete commands, flags and files."""

import click
from click.shell_completion import get_completion_class

_HELP = """Print a script that makes SHELL complete evalcell's commands, flags and values.

\b
  evalcell completion bash >> ~/.bashrc
  evalcell completion zsh >> ~/.zshrc
  evalcell completion fish > ~/.config/fish/completions/evalcell.fish
"""


@click.command(help=_HELP, short_help="Print a script for shell completion.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Prints click's own script for the shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(context.find_root().command, {}, "evalcell", "_EVALCELL_COMPLETE").source())
