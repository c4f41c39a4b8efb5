"""Decides every setting of a run and remembers where each value came from.

Precedence: flags, then the file's block, then the defaults. The block requests, the operator grants: what would
weaken the wall (`isolation`, `network`, `env`) or raise a limit past the operator's maximum is refused until a flag
says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from evalcell.errors import EvaluatorError, UsageError, did_you_mean
from evalcell.manifest import Manifest
from evalcell.output import Output
from evalcell_sandboxes import Isolation, Limits, Network

FLAG, BLOCK, DEFAULT = "flag", "file's block", "default"

MAXIMUM = Limits(
    wall_seconds=60.0,
    load_seconds=300.0,
    fit_seconds=600.0,
    aggregate_seconds=600.0,
    memory_bytes=2 * 1024**3,
    stdout_bytes=1024**2,
    stderr_bytes=1024**2,
    result_bytes=8 * 1024**2,
    source_bytes=1024**2,
    asset_bytes=512 * 1024**2,
)
"""How far a file's block may raise its own limits. A flag may go further."""

FIT_ROWS = 10_000
"""On how many rows an evaluator is fitted where nobody says otherwise."""

MOST_SEEDS = 2**63

# Below these nothing can run: the interpreter alone takes 30 MB, and deadlines are looked at every 5 ms.
_MOST_SECONDS = 10.0**6
_MOST_FIT_ROWS = 10**9
_MOST_BYTES = 2.0**40
_MINIMUM = {"memory_bytes": 64 * 1024**2, "wall_seconds": 0.01, "load_seconds": 0.1}


@dataclass(frozen=True)
class Operator:
    """What the person who runs the evaluator said, on the command line or in code."""

    limits: Mapping[str, float] = field(default_factory=dict)
    isolation: Isolation | None = None
    sandbox: str | None = None
    bind: Mapping[str, str] = field(default_factory=dict)
    set: Mapping[str, Any] = field(default_factory=dict)
    fit_rows: int | None = None
    dependencies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """Every effective value; `sources` says for each one where it came from."""

    limits: Limits
    isolation: Isolation
    network: Network
    output: Output
    bind: dict[str, str]
    set: dict[str, Any]
    fit_rows: int
    dependencies: tuple[str, ...]
    sources: dict[str, str]


def settle(manifest: Manifest, operator: Operator) -> Settings:
    """Puts flags, block and defaults together.

    Raises:
        EvaluatorError: The block asks for more than a block may.
        UsageError: A flag makes no sense.
    """
    _refuse_ungranted(manifest, operator)
    sources: dict[str, str] = {}
    limits = _limits(manifest, operator, sources)
    isolation = operator.isolation or manifest.isolation or Isolation.ROW
    sources["isolation"] = FLAG if operator.isolation else BLOCK if manifest.isolation else DEFAULT
    sources["network"] = BLOCK if manifest.network else DEFAULT
    sources["output"] = BLOCK if manifest.output else DEFAULT
    bind, literals = _bindings(manifest, operator, sources)
    output = manifest.output or Output()
    fit_rows = operator.fit_rows or manifest.fit_rows or FIT_ROWS
    if fit_rows > _MOST_FIT_ROWS:
        raise UsageError(f"fit_rows = {fit_rows} cannot work; it goes from 1 to {_MOST_FIT_ROWS:,}.")
    sources["fit_rows"] = FLAG if operator.fit_rows else BLOCK if manifest.fit_rows else DEFAULT
    dependencies = tuple(dict.fromkeys((*manifest.dependencies, *operator.dependencies)))
    sources["dependencies"] = FLAG if operator.dependencies else BLOCK if dependencies else DEFAULT
    return Settings(limits, isolation, Network.NONE, output, bind, literals, fit_rows, dependencies, sources)


def _refuse_ungranted(manifest: Manifest, operator: Operator) -> None:
    if manifest.isolation is Isolation.EVALUATOR and operator.isolation is None:
        raise EvaluatorError(
            "metadata",
            "The file asks for isolation 'evaluator', in which rows share state. Grant it with --isolation evaluator, "
            "or keep every row fresh with --isolation row.",
        )
    not_yet = "and this version of evalcell has no sandbox that can"
    if manifest.network not in (None, Network.NONE):
        raise EvaluatorError(
            "metadata",
            f"The file asks for network {str(manifest.network)!r}. Only --network could grant it, {not_yet}.",
        )
    if manifest.env:
        raise EvaluatorError(
            "metadata", f"The file asks for the variable {manifest.env[0]!r}. Only --env could grant it, {not_yet}."
        )


def _limits(manifest: Manifest, operator: Operator, sources: dict[str, str]) -> Limits:
    asked = manifest.limits
    for name, value in asked.items():
        if value > getattr(MAXIMUM, name) and name not in operator.limits:
            raise EvaluatorError(
                "metadata",
                f"The file asks for {name} = {value:g}; a file may ask for {getattr(MAXIMUM, name):g} at most. "
                f"Grant it with --limit {name}={value:g}.",
            )
    for name in Limits.__struct_fields__:
        sources[f"limits.{name}"] = FLAG if name in operator.limits else BLOCK if name in asked else DEFAULT
    return with_limits(Limits(), {**asked, **operator.limits})


def with_limits(limits: Limits, changes: Mapping[str, float]) -> Limits:
    """The limits with some of them changed.

    Raises:
        UsageError: There is no such limit, or nothing could work under it.
    """
    known = Limits.__struct_fields__
    for name, value in changes.items():
        if name not in known:
            raise UsageError(f"There is no limit {name!r}; there are {', '.join(known)}.{did_you_mean(name, known)}")
        least = _MINIMUM.get(name, 1 if name.endswith("_bytes") else 0.01)
        most = _MOST_BYTES if name.endswith("_bytes") else _MOST_SECONDS
        if not least <= value <= most:
            raise UsageError(f"The limit {name} = {value:g} cannot work; it goes from {least:g} to {most:g}.")
    whole = {name: int(value) if name.endswith("_bytes") else float(value) for name, value in changes.items()}
    return structs.replace(limits, **whole)


def _bindings(manifest: Manifest, operator: Operator, sources: dict[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Per parameter the operator's word wins, whether it is a path or a literal."""
    said = {*operator.bind, *operator.set}
    bind = {name: path for name, path in manifest.bind.items() if name not in said} | dict(operator.bind)
    literals = {name: value for name, value in manifest.set.items() if name not in said} | dict(operator.set)
    for name in (*bind, *literals):
        sources[f"parameters.{name}"] = FLAG if name in said else BLOCK
    return bind, literals
