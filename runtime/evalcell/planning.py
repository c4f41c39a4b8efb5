"""Settles everything about a run before its first row."""

from dataclasses import dataclass

from evalcell.binding import bind
from evalcell.choice import Choice, check_python, choose
from evalcell.configuration import DEFAULT, FLAG, Operator
from evalcell.errors import EvaluatorError, UsageError
from evalcell.evaluator import Understood, program_digest, version_digest
from evalcell.granting import granted_values
from evalcell.paths import Path
from evalcell.plan import Plan
from evalcell.settings import Settings, settle
from evalcell_sandboxes import Asset, Confinement, Progress, Sandbox, SandboxUnavailable, sandbox, silent
from evalcell_sandboxes.site import ENVIRONMENT


@dataclass(frozen=True)
class Planned:
    """A plan with how it came about."""

    plan: Plan
    choice: Choice
    settings: Settings
    sandbox: Sandbox
    lock_source: str = ""


def choose_sandbox(understood: Understood, settings: Settings, progress: Progress = silent) -> tuple[Choice, Sandbox]:
    """The sandbox for the evaluator, prepared for any program.

    Raises:
        EvaluatorError: No sandbox can run it.
        UsageError: A flag is for another sandbox.
        SandboxUnavailable: The one that could is not to be had here.
    """
    evaluator = understood.evaluator
    choice = choose(
        understood.description,
        settings.dependencies,
        settings.wall,
        settings.network,
        evaluator.beside,
        evaluator.language,
    )
    if choice.sandbox != "container":
        _refuse_flags_of_containers(choice, settings)
    wall = sandbox(choice.sandbox, settings.site)
    if reason := wall.unavailable_reason():
        raise SandboxUnavailable(choice.sandbox, reason)
    wall.prepare(None, progress)
    check_python(understood.manifest.requires_python, choice.sandbox, wall.python)
    remark = wall.remark()
    return (Choice(choice.sandbox, f"{choice.reason}; {remark}") if remark else choice), wall


def _refuse_flags_of_containers(choice: Choice, settings: Settings) -> None:
    for name in ENVIRONMENT:
        if settings.sources[name] == FLAG:
            raise UsageError(
                f"--{name} is for containers, and this runs in {choice.sandbox!r}: {choice.reason}. Leave it out, "
                "or add --sandbox container."
            )


def make_plan(
    understood: Understood,
    operator: Operator,
    *,
    started_ns: int,
    id_path: str | None = None,
    progress: Progress = silent,
) -> Planned:
    """Settles everything about a run of the evaluator.

    Raises:
        EvaluatorError: The file cannot be run.
        UsageError: A flag makes no sense.
        SandboxUnavailable: The sandbox it needs is not to be had here.
    """
    settings = settle(understood.manifest, operator)
    bindings = bind(understood.evaluate, settings.bind, settings.set, understood.evaluator.spelling)
    if id_path is not None:
        Path(id_path)
    fit_rows = _fit_rows(understood, settings)
    choice, wall = choose_sandbox(understood, settings, progress)
    lock, lock_source = _lock(understood, operator, settings, wall, progress)
    program = understood.evaluator.program(lock, _assets(understood, settings))
    digest = program_digest(
        program, wall.guest_identity(), settings.isolation, network=settings.network, env=settings.env
    )
    plan = Plan(
        evaluator=understood.evaluator.name,
        version=version_digest(digest, settings.output, settings.set, settings.limits, fit_rows),
        sandbox=choice.sandbox,
        program=program,
        confinement=Confinement(
            limits=settings.limits,
            isolation=settings.isolation,
            network=settings.network,
            environment=granted_values(settings.env),
            seed=settings.seed,
            clock_start_ns=started_ns,
        ),
        bindings=bindings,
        output=settings.output,
        id_path=id_path,
        fit_rows=fit_rows,
        aggregates=understood.description.hook("aggregate") is not None,
        site=wall.site,
    )
    return Planned(plan, choice, settings, wall, lock_source)


def _lock(
    understood: Understood, operator: Operator, settings: Settings, wall: Sandbox, progress: Progress
) -> tuple[str, str]:
    """The lock and where it is from. Empty where no packages are needed: a wall that takes none is chosen only then."""
    if not settings.dependencies or wall.name != "container":
        return "", ""
    from evalcell.locking import lock_for

    return lock_for(understood.evaluator, settings.dependencies, operator, wall, progress)


def _assets(understood: Understood, settings: Settings) -> tuple[Asset, ...]:
    if not understood.manifest.assets:
        return ()
    from evalcell.assets import ship

    return ship(understood.evaluator, understood.manifest.assets, settings.limits)


def _fit_rows(understood: Understood, settings: Settings) -> int | None:
    """On how many rows to fit; None without a `fit`, and then nobody may have asked for it."""
    if understood.description.hook("fit") is not None:
        return settings.fit_rows
    source, nothing = settings.sources["fit_rows"], f"{understood.evaluator.filename} defines no fit at its top level"
    if source == FLAG:
        raise UsageError(f"--fit-rows {settings.fit_rows} makes no sense here: {nothing}. Leave it out.")
    if source != DEFAULT:
        add = understood.evaluator.spelling.fit
        raise EvaluatorError("metadata", f"The file's block sets fit_rows, but {nothing}. Add {add}.")
    return None
