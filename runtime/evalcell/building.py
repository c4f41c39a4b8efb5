"""Builds what sandboxes need before anybody runs in them."""

from evalcell import disk
from evalcell.configuration import Named, Operator
from evalcell.errors import EvaluatorError
from evalcell.locking import locked
from evalcell.manifest import Manifest
from evalcell.settings import settle
from evalcell_sandboxes import DependencyProblem, Program, Progress, SandboxUnavailable, sandbox
from evalcell_sandboxes.container import locking


def build_layer(named: Named, progress: Progress) -> tuple[str, ...]:
    """Makes the base and the layer of packages of a sandbox ready, and says which packages are in it.

    Raises:
        EvaluatorError: They cannot be had.
        SandboxUnavailable, SandboxFault: The engine, or the installer, could not do it.
    """
    settings = settle(Manifest(), Operator(named=named))
    if settings.wall not in (None, "container"):
        return ()
    wall = sandbox("container", settings.site)
    if reason := wall.unavailable_reason():
        raise SandboxUnavailable(wall.name, reason)
    wall.prepare(None, progress)
    if not settings.dependencies:
        return ()
    program = Program(source="", filename=f"sandbox {named.name}", lock=locked(settings.dependencies, wall, progress))
    with wall.holding(program):
        try:
            wall.prepare(program, progress)
        except DependencyProblem as error:
            raise EvaluatorError("dependencies", str(error)) from None
        disk.prune([wall], settings.disk_bytes)
    return locking.packages(program.lock, wall.python)
