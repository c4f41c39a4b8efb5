"""Decides every setting of a run and remembers where each value came from.

Precedence: flags, then the sandbox that they name, then the environment, then the file's block, then the defaults. The
block requests, the operator grants: what would weaken the wall (`isolation`, `network`, `env`) or raise a limit past
the operator's maximum is refused until the operator says so.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from evalcell.configuration import BLOCK, DEFAULT, DISK_BYTES, FLAG, MAXIMUM, Operator, heard, plain
from evalcell.errors import EvaluatorError
from evalcell.manifest import Manifest
from evalcell.output import Output
from evalcell_sandboxes import Isolation, Limits, Network
from evalcell_sandboxes.site import ENVIRONMENT, Site

FIT_ROWS = 10_000
"""On how many rows an evaluator is fitted where nobody says otherwise."""


@dataclass(frozen=True)
class Settings:
    """Every effective value; `sources` says for each one where it came from. `wall` is None where none was demanded.

    Of variables there are only the names.
    """

    wall: str | None
    limits: Limits
    isolation: Isolation
    network: Network
    env: tuple[str, ...]
    site: Site
    output: Output
    bind: dict[str, str]
    set: dict[str, Any]
    fit_rows: int
    workers: int | None
    seed: int
    disk_bytes: int
    cache_dir: Path | None
    data_dir: Path | None
    dependencies: tuple[str, ...]
    sources: dict[str, str]


def settle(manifest: Manifest, operator: Operator) -> Settings:
    """Puts flags, the named sandbox, the environment, the block and the defaults together.

    Raises:
        EvaluatorError: The block asks for more than a block may.
    """
    _refuse_ungranted(manifest, operator)
    said = _Said(manifest, operator)
    bind, literals = _bindings(manifest, operator, said.sources)
    env = said.all("env")
    said.sources["output"] = BLOCK if manifest.output else DEFAULT
    return Settings(
        wall=said.first("wall", asked=manifest.sandbox),
        limits=said.limits(),
        isolation=said.first("isolation", asked=manifest.isolation, otherwise=Isolation.ROW),
        network=said.first("network", asked=manifest.network, otherwise=Network.NONE),
        env=env,
        site=Site(**{name: said.first(name, otherwise="") for name in ENVIRONMENT}, withheld=env),
        output=manifest.output or Output(),
        bind=bind,
        set=literals,
        fit_rows=said.first("fit_rows", asked=manifest.fit_rows, otherwise=FIT_ROWS),
        workers=said.first("workers"),
        seed=said.first("seed", otherwise=0),
        disk_bytes=said.first("disk_bytes", otherwise=DISK_BYTES),
        cache_dir=said.first("cache_dir"),
        data_dir=said.first("data_dir"),
        dependencies=said.all("dependencies", asked=manifest.dependencies),
        sources=said.sources,
    )


class _Said:
    """What was said about a setting, by whoever has a say in it."""

    def __init__(self, manifest: Manifest, operator: Operator) -> None:
        self._manifest = manifest
        self._operator = operator
        self._heard = heard(os.environ)
        self.sources: dict[str, str] = {}

    def first(self, name: str, *, asked: Any = None, otherwise: Any = None) -> Any:
        """The word that counts most."""
        for source, configuration in self._operator.layers():
            if (value := getattr(configuration, name, None)) is not None:
                return self._from(source, value, name)
        if name in self._heard:
            return self._from(*self._heard[name], name)
        return self._from(BLOCK, asked, name) if asked is not None else self._from(DEFAULT, otherwise, name)

    def all(self, name: str, *, asked: tuple[str, ...] = ()) -> tuple[str, ...]:
        """What everybody said, together."""
        words = [(BLOCK, asked), *((source, getattr(said, name)) for source, said in self._operator.layers())]
        sources = [source for source, values in words if values]
        together = tuple(dict.fromkeys(value for _, values in words for value in values))
        self.sources[name] = " and ".join(sources) or DEFAULT
        return together

    def limits(self) -> Limits:
        changes: dict[str, float] = {}
        layers = [(BLOCK, self._manifest.limits), *_granted_limits(self._operator)]
        for name in Limits.__struct_fields__:
            self.sources[f"limits.{name}"] = DEFAULT
            for source, limits in layers:
                if name in limits:
                    changes[name] = self._from(source, limits[name], f"limits.{name}")
        return structs.replace(Limits(), **changes)

    def _from(self, source: str, value: Any, name: str) -> Any:
        self.sources[name] = source
        return value


def _granted_limits(operator: Operator) -> list[tuple[str, dict[str, float]]]:
    """What the operator says about limits, the word that counts most last."""
    return [(source, said.limits.said()) for source, said in reversed(list(operator.layers()))]


def operator_limits(operator: Operator) -> Limits:
    """The limits without a word of the file's own, which counts only once it has been parsed."""
    said = [limits for _, limits in _granted_limits(operator)]
    return structs.replace(Limits(), **{name: value for limits in said for name, value in limits.items()})


def _refuse_ungranted(manifest: Manifest, operator: Operator) -> None:
    granted = [configuration for _, configuration in operator.layers()]
    if manifest.isolation is Isolation.EVALUATOR and not any(said.isolation for said in granted):
        raise EvaluatorError(
            "metadata",
            "The file asks for isolation 'evaluator', in which rows share state. Grant it with --isolation evaluator, "
            "or keep every row fresh with --isolation row.",
        )
    if manifest.network is Network.FULL and not any(said.network for said in granted):
        raise EvaluatorError(
            "metadata",
            "The file asks for network 'full', with which it could send your rows anywhere. Grant it with "
            "--network full, or run it without with --network none.",
        )
    for name in manifest.env:
        if not any(name in said.env for said in granted):
            raise EvaluatorError("metadata", f"The file asks for the variable {name!r}. Grant it with --env {name}.")
    _refuse_limits(manifest.limits, {name for said in granted for name in said.limits.said()})


def _refuse_limits(asked: Mapping[str, float], granted: set[str]) -> None:
    for name, value in asked.items():
        most = getattr(MAXIMUM, name)
        if value > most and name not in granted:
            raise EvaluatorError(
                "metadata",
                f"The file asks for {name} = {plain(value)}; a file may ask for {plain(most)} at most. "
                f"Grant it with --limit {name}={plain(value)}.",
            )


def _bindings(manifest: Manifest, operator: Operator, sources: dict[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Per parameter the operator's word wins, whether it is a path or a literal."""
    said = {*operator.bind, *operator.set}
    bind = {name: path for name, path in manifest.bind.items() if name not in said} | dict(operator.bind)
    literals = {name: value for name, value in manifest.set.items() if name not in said} | dict(operator.set)
    for name in (*bind, *literals):
        sources[f"parameters.{name}"] = FLAG if name in said else BLOCK
    return bind, literals
