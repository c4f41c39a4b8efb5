"""Settles everything about a run before its first row."""

from dataclasses import dataclass

from evalcell.binding import bind
from evalcell.choice import Choice, check_python, choose
from evalcell.errors import EvaluatorError, UsageError, did_you_mean
from evalcell.evaluator import Understood, program_digest, version_digest
from evalcell.paths import Path
from evalcell.plan import Plan
from evalcell.settings import DEFAULT, FLAG, Operator, Settings, settle
from evalcell_sandboxes import Confinement, Sandbox, SandboxUnavailable, names, sandbox
from evalcell_sandboxes.registry import known


@dataclass(frozen=True)
class Planned:
    """A plan with how it came about."""

    plan: Plan
    choice: Choice
    settings: Settings
    sandbox: Sandbox


def choose_sandbox(understood: Understood, operator: Operator) -> tuple[Choice, Sandbox]:
    """The sandbox for the evaluator, made but not started.

    Raises:
        UsageError: A sandbox was asked for that does not exist.
        EvaluatorError: No sandbox can run it.
        SandboxUnavailable: The one that could is not to be had here.
    """
    manifest = understood.manifest
    if operator.sandbox is not None and not known(operator.sandbox):
        listed = ", ".join(map(repr, names()))
        raise UsageError(
            f"There is no sandbox {operator.sandbox!r}; there are {listed}.{did_you_mean(operator.sandbox, names())}"
        )
    choice = choose(understood.description, manifest.dependencies, operator.sandbox or manifest.sandbox)
    wall = sandbox(choice.sandbox)
    check_python(manifest.requires_python, choice.sandbox, wall.python)
    if reason := wall.unavailable_reason():
        raise SandboxUnavailable(choice.sandbox, reason)
    return choice, wall


def make_plan(
    understood: Understood, operator: Operator, *, started_ns: int, seed: int = 0, id_path: str | None = None
) -> Planned:
    """Settles everything about a run of the evaluator.

    Raises:
        EvaluatorError: The file cannot be run.
        UsageError: A flag makes no sense.
        SandboxUnavailable: The sandbox it needs is not to be had here.
    """
    settings = settle(understood.manifest, operator)
    bindings = bind(understood.evaluate, settings.bind, settings.set)
    if id_path is not None:
        Path(id_path)
    fit_rows = _fit_rows(understood, settings)
    choice, wall = choose_sandbox(understood, operator)
    program = program_digest(understood.evaluator.program, wall.guest_identity(), settings.isolation)
    plan = Plan(
        evaluator=understood.evaluator.name,
        version=version_digest(program, settings.output, settings.set, settings.limits, fit_rows),
        sandbox=choice.sandbox,
        program=understood.evaluator.program,
        confinement=Confinement(
            limits=settings.limits,
            isolation=settings.isolation,
            network=settings.network,
            seed=seed,
            clock_start_ns=started_ns,
        ),
        bindings=bindings,
        output=settings.output,
        id_path=id_path,
        fit_rows=fit_rows,
        aggregates=understood.description.hook("aggregate") is not None,
    )
    return Planned(plan, choice, settings, wall)


def _fit_rows(understood: Understood, settings: Settings) -> int | None:
    """On how many rows to fit; None without a `fit`, and then nobody may have asked for it."""
    if understood.description.hook("fit") is not None:
        return settings.fit_rows
    source, nothing = settings.sources["fit_rows"], f"{understood.evaluator.filename} defines no fit at its top level"
    if source == FLAG:
        raise UsageError(f"--fit-rows {settings.fit_rows} makes no sense here: {nothing}. Leave it out.")
    if source != DEFAULT:
        raise EvaluatorError("metadata", f"The file's block sets fit_rows, but {nothing}. Add `def fit(rows):`.")
    return None
