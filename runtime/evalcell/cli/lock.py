"""`evalcell lock`: writes down which exact packages an evaluator runs with."""

from pathlib import Path
from typing import Any

import click

from evalcell import configurations
from evalcell.cli.options import configuration_options, sandbox_option
from evalcell.cli.screen import Screen
from evalcell.configuration import Operator
from evalcell.errors import UsageError
from evalcell.evaluator import Evaluator, Understood
from evalcell.locking import lock_path, locked
from evalcell.manifest import Manifest
from evalcell.running import parsed
from evalcell.settings import operator_limits, settle
from evalcell_sandboxes import Progress, sandbox
from evalcell_sandboxes.caching import replacing
from evalcell_sandboxes.container import locking

_HELP = """Resolve the dependencies of EVALUATOR to exact versions with hashes, and write them beside it: judge.lock for
judge.py. Runs use that lock as it is, so that they can be repeated exactly; when the dependencies change, they say that
it is stale. Only wheels are used. The lock holds no address, and pip can read it.

\b
  evalcell lock judge.py
  evalcell lock judge.py --dep 'numpy<2'
"""


@click.command(help=_HELP, short_help="Write down the exact packages that an evaluator runs with.")
@click.argument("evaluator", type=click.Path(path_type=Path))
@sandbox_option
@configuration_options(only=("dependencies", "limits", "base", "engine"))
def lock(evaluator: Path, sandbox: str | None, said: dict[str, Any]) -> int:
    """Writes the lock."""
    operator = configurations.operator(sandbox=sandbox, **said)
    target = lock_path(evaluator)
    with Screen(quiet=False) as screen:
        source = Evaluator.from_file(evaluator, operator_limits(operator))
        with parsed(source, operator, progress=screen.progress, meanwhile=screen.get_ready) as (understood, _):
            text = _made(understood, operator, screen.progress)
        screen.stop()
    with replacing(target) as file:  # also where something lies that leads elsewhere
        file.write_text(text, encoding="utf-8")
        file.chmod(0o644)
    packages = locking.packages(text)
    click.echo(f"{target}: {len(packages)} package{'s' if len(packages) != 1 else ''}")
    for package in packages:
        click.echo(f"  {package}")
    return 0


def _made(understood: Understood, operator: Operator, progress: Progress) -> str:
    settings = settle(Manifest(dependencies=understood.manifest.dependencies), operator)  # nothing is granted here
    if not settings.dependencies:
        raise UsageError(
            f"{understood.evaluator.filename} depends on no packages, so there is nothing to lock. "
            "Name them in its metadata block, or with --dep."
        )
    return locked(settings.dependencies, sandbox("container", settings.site), progress, anew=True)
