"""Everything that an operator says about the wall around an evaluator. Each setting is defined here, and only here.

A `Configuration` is what can be kept under a name and shared by evaluators; an `Operator` is what somebody said for one
run. Flags, the page of settings and the report of `evalcell check` are made from these fields: each has its line, its
flag and, where it has one, the variable of the environment that says it too.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from evalcell import data
from evalcell.errors import UsageError, did_you_mean
from evalcell_sandboxes import Isolation, Limits, Network, caching, names
from evalcell_sandboxes.registry import known
from evalcell_sandboxes.requirements import requirement
from evalcell_sandboxes.site import ENVIRONMENT

_MOST_SECONDS = 10.0**6
_MOST_BYTES = 2**40
_MIB = 1024**2
_LONGEST = 500
MOST_FIT_ROWS = 10**9
MOST_SEEDS = 2**63
MOST_WORKERS = 10_000
DISK_BYTES = 20 * 10**9


class Strict(BaseModel):
    """A model that people write: what it does not know is a mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Said:
    """How a setting is said: with which flag, by which variable of the environment, and what a file's block may say of
    it, each if at all; and what holds otherwise.
    """

    flag: str = ""
    metavar: str | None = None
    environment: str | None = None
    in_a_file: str = ""
    otherwise: str = "none"


# -- amounts of bytes -------------------------------------------------------------------------------------------------
_UNITS = {"": 1, "k": 10**3, "ki": 2**10, "m": 10**6, "mi": 2**20, "g": 10**9, "gi": 2**30, "t": 10**12, "ti": 2**40}
_AMOUNT = re.compile(r"([0-9]*\.?[0-9]+)\s*([kmgt]?i?)b?", re.IGNORECASE)


def amount(text: str) -> float | None:
    """How many bytes people mean by 256MiB, 1.5 GB or 1000; None where it is no such thing."""
    match = _AMOUNT.fullmatch(text.strip())
    return float(match[1]) * _UNITS[match[2].lower()] if match and match[2].lower() in _UNITS else None


def plain(number: Any) -> str:
    """A number as people write it, and as a flag takes it."""
    try:
        return str(int(number)) if float(number).is_integer() else repr(float(number))
    except (ValueError, OverflowError):
        return repr(number)


def _amount(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if (found := amount(value)) is None:
        raise ValueError(f"{value!r} is not an amount of bytes, such as 50GB")
    return int(found)


# -- limits -----------------------------------------------------------------------------------------------------------
def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and isfinite(value) else value


_Seconds = Annotated[float | None, Field(le=_MOST_SECONDS, allow_inf_nan=False)]
_Bytes = Annotated[int | None, BeforeValidator(_whole), Field(le=_MOST_BYTES)]


def _limit(about: str, *, least: float, in_a_file: float) -> Any:
    """A limit that nobody has said yet. A file may ask for so much by itself; the operator may go further."""
    return Field(default=None, ge=least, description=about, json_schema_extra={"in_a_file": in_a_file})


class LimitsModel(Strict):
    """What a program may use up: only what differs from the defaults, which `Limits` states.

    Below the least nothing can run: the interpreter alone takes 30 MB, and deadlines are looked at every 5 ms.
    """

    wall_seconds: _Seconds = _limit("how long a row may take", least=0.01, in_a_file=60)
    load_seconds: _Seconds = _limit("how long the module may take to load", least=0.1, in_a_file=300)
    fit_seconds: _Seconds = _limit("how long `fit` may take", least=0.01, in_a_file=600)
    aggregate_seconds: _Seconds = _limit("how long `aggregate` may take", least=0.01, in_a_file=600)
    memory_bytes: _Bytes = _limit("memory of the code and its data", least=64 * _MIB, in_a_file=2048 * _MIB)
    stdout_bytes: _Bytes = _limit("how much of a row's stdout is kept", least=1, in_a_file=_MIB)
    stderr_bytes: _Bytes = _limit("how much of a row's stderr is kept", least=1, in_a_file=_MIB)
    result_bytes: _Bytes = _limit("how large a row's result may be", least=1, in_a_file=8 * _MIB)
    source_bytes: _Bytes = _limit("how large the source may be", least=1, in_a_file=_MIB)
    asset_bytes: _Bytes = _limit("how large all assets may be together", least=1, in_a_file=512 * _MIB)

    def said(self) -> dict[str, float]:
        """Those that somebody has said."""
        return self.model_dump(exclude_none=True)


assert set(LimitsModel.model_fields) == set(Limits.__struct_fields__)


MAXIMUM = Limits(
    **{name: cast("Any", field.json_schema_extra)["in_a_file"] for name, field in LimitsModel.model_fields.items()}
)
"""How far a file's block may raise its own limits."""


# -- the rest ---------------------------------------------------------------------------------------------------------
def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        # What was said is not repeated: it may be the value itself.
        raise ValueError("that is not the name of a variable, such as API_TOKEN, without its value")
    return name


def wall(name: str) -> str:
    """The name of a wall that there is: a sandbox that is kept has no place where this is asked for."""
    if not known(name):
        listed = ", ".join(map(repr, names()))
        raise ValueError(f"there is no wall {name!r}; there are {listed}.{did_you_mean(name, names())}")
    return name


def _one_word(text: str) -> str:
    if not text.strip() or len(text) > _LONGEST or re.search(r"[\s\x00-\x1f\x7f\ud800-\udfff]", text):
        raise ValueError(f"{text[:80]!r} is not a name or an address")
    return text


def _address(text: str) -> str:
    from evalcell_sandboxes.container.addresses import problem  # not needed where no engine is named

    if (wrong := problem(text)) is not None:
        raise ValueError(wrong)
    return text


def _once(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


Requirement = Annotated[str, AfterValidator(requirement)]
Variable = Annotated[str, AfterValidator(_variable)]
Variables = Annotated[tuple[Variable, ...], AfterValidator(_once)]
_Word = Annotated[str, AfterValidator(_one_word)]


class Configuration(Strict):
    """What an operator says about a sandbox. None and empty where nothing was said."""

    wall: Annotated[
        str | None,
        AfterValidator(lambda name: name and wall(name)),
        Field(description="The wall of a kept sandbox, if not the one that the code needs. For one run: `--sandbox`."),
        Said("--wall", "NAME", in_a_file="as `sandbox`", otherwise="what the code needs"),
    ] = None
    dependencies: Annotated[
        tuple[Requirement, ...],
        AfterValidator(_once),
        Field(
            description="A package that the evaluator needs, such as 'scikit-learn>=1.5', besides what its file names. "
            "Packages run in a container."
        ),
        Said("--dep", "REQUIREMENT", in_a_file="yes"),
    ] = ()
    env: Annotated[
        Variables,
        Field(
            description="Grant the code a variable of your environment, by name. Its value is never kept, and hidden "
            "in what the code prints, raises or returns."
        ),
        Said("--env", "NAME", in_a_file="refused until granted"),
    ] = ()
    network: Annotated[
        Network | None,
        Field(
            description="'none': nothing can be reached. 'full': all that the engine's network reaches, in a container."
        ),
        Said("--network", in_a_file="'full' is refused until granted", otherwise="none"),
    ] = None
    isolation: Annotated[
        Isolation | None,
        Field(description="'row': every row starts fresh. 'evaluator': rows share state."),
        Said("--isolation", in_a_file="'evaluator' is refused until granted", otherwise="row"),
    ] = None
    limits: Annotated[
        LimitsModel,
        Field(description="A limit, such as wall_seconds=2 or memory_bytes=256MiB."),
        Said("--limit", "KEY=VALUE", in_a_file="up to a maximum, see below", otherwise="see below"),
    ] = LimitsModel()
    base: Annotated[
        _Word | None,
        Field(description="The image that containers stand on: one with Python in it."),
        Said(
            "--base",
            "IMAGE",
            ENVIRONMENT["base"],
            otherwise="python:3.12-slim, or this machine's own Python where no registry can be reached",
        ),
    ] = None
    runtime: Annotated[
        _Word | None,
        Field(description="The engine's OCI runtime that runs containers, such as runsc."),
        Said("--runtime", "NAME", ENVIRONMENT["runtime"], otherwise="the engine's own"),
    ] = None
    engine: Annotated[
        Annotated[_Word, AfterValidator(_address)] | None,
        Field(description="The container engine: an address, such as unix:///run/engine.sock, or a Docker context."),
        Said("--engine", "ADDRESS", ENVIRONMENT["engine"], otherwise="Docker's current context, else its usual socket"),
    ] = None

    @model_validator(mode="after")
    def _coherent(self) -> "Configuration":
        asked = [name for name in ("dependencies", "base", "runtime", "engine") if getattr(self, name)]
        asked += ["network 'full'"] if self.network is Network.FULL else []
        if self.wall not in (None, "container") and asked:
            raise UsageError(
                f"{asked[0]} is for containers, and the wall {self.wall!r} is asked for. Leave out one of the two."
            )
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _in_our_words(cls, values: Any, validate: ModelWrapValidatorHandler["Configuration"]) -> "Configuration":
        try:
            return validate(values)
        except ValidationError as error:
            raise UsageError(_problem(error, cls)) from None

    def said(self) -> dict[str, Any]:
        """What was said, as plain values."""
        return self.model_dump(mode="json", exclude_defaults=True, exclude_none=True)


@dataclass(frozen=True)
class Named:
    """A configuration that is kept under a name."""

    name: str
    configuration: Configuration

    def __str__(self) -> str:
        return f"sandbox {self.name!r}"


class Operator(Configuration):
    """What the person who runs an evaluator said for this run, on the command line or in code.

    `sandbox` names a wall, or a kept configuration, which then is `named`.
    """

    sandbox: str | None = None
    named: Named | None = None
    bind: Mapping[str, str] = {}
    set: Mapping[str, JsonValue] = {}
    fit_rows: Annotated[
        int | None,
        Field(
            ge=1,
            le=MOST_FIT_ROWS,
            description="Call the file's fit with the first so many rows, however many are scored.",
        ),
        Said("--fit-rows", "N", in_a_file="yes", otherwise="10,000"),
    ] = None
    workers: Annotated[
        int | None,
        Field(ge=1, le=MOST_WORKERS, description="Worker processes, each of which runs rows on its own."),
        Said("--workers", "N", otherwise="one a core"),
    ] = None
    seed: Annotated[
        int | None,
        Field(ge=0, le=MOST_SEEDS - 1, description="What all randomness in WebAssembly starts from."),
        Said("--seed", "N", otherwise="0"),
    ] = None
    disk_bytes: Annotated[
        int | None,
        BeforeValidator(_amount),
        Field(
            ge=0,
            le=2**60,
            description="How much layers, compiled modules, downloads and assets may take up before those that were "
            "not used for longest are removed.",
        ),
        Said(environment="EVALCELL_DISK_BYTES", otherwise="20 GB"),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _wall_by_its_name(cls, values: Any) -> Any:
        return {"wall": values["sandbox"], **values} if known(values.get("sandbox") or "") else values

    def layers(self) -> Iterator[tuple[str, Configuration]]:
        """What was said and where, the word that counts most first."""
        yield FLAG, self
        if self.named is not None:
            yield str(self.named), self.named.configuration


class Surroundings(Operator):
    """What the environment says. Where things are kept, only it does: whoever keeps something there asks it."""

    cache_dir: Annotated[
        Path | None,
        Field(description="Where everything is kept that could be made again, such as compiled modules and downloads."),
        Said(environment=caching.VARIABLE, otherwise="the user's cache directory"),
    ] = None
    data_dir: Annotated[
        Path | None,
        Field(description="Where everything else is kept, such as named sandboxes."),
        Said(environment=data.VARIABLE, otherwise="the user's data directory"),
    ] = None


FLAG, BLOCK, DEFAULT = "flag", "file's block", "default"


def settings(model: type[Configuration] = Surroundings) -> Iterator[tuple[str, FieldInfo, Said]]:
    """Every setting that can be said, with its field and how it is said."""
    for name, field in model.model_fields.items():
        said = next((each for each in field.metadata if isinstance(each, Said)), None)
        if said is not None:
            yield name, field, said


def heard(environ: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    """What the environment says about settings: for each the variable, and its value.

    Where the engine is, is meant for other programs too, and for many runs of no interest: it is looked at when it is
    needed.

    Raises:
        UsageError: Something else makes no sense.
    """
    variables = {name: said.environment for name, _, said in settings() if said.environment}
    return {
        name: (variable, text if name == "engine" else _heard(name, variable, text))
        for name, variable in variables.items()
        if (text := environ.get(variable))
    }


def _heard(name: str, variable: str, text: str) -> Any:
    try:
        return getattr(Surroundings.model_validate({name: text}), name)
    except UsageError as error:
        raise UsageError(f"{variable} makes no sense: {error}") from None


# -- mistakes ---------------------------------------------------------------------------------------------------------
_OUT_OF_RANGE = {"greater_than_equal", "less_than_equal", "finite_number"}


def _problem(error: ValidationError, model: type[BaseModel]) -> str:
    """The first thing that is wrong, in a sentence."""
    problem = error.errors(include_url=False)[0]
    first, *rest = problem["loc"] or ("",)
    if problem["type"] == "extra_forbidden":
        return _unknown(str(problem["loc"][-1]), LimitsModel if first == "limits" else model)
    if problem["type"] in _OUT_OF_RANGE:
        owner, name = (LimitsModel, str(rest[0])) if first == "limits" else (model, str(first))
        return _out_of_range(owner, name, problem["input"])
    message = str(problem["msg"]).removeprefix("Value error, ")
    where = f"{'.'.join(map(str, problem['loc']))}: " if problem["loc"] else ""
    # What was given for a variable's name is not repeated: it may be the value itself.
    got = "" if problem["type"] == "value_error" or first == "env" else f", got {problem['input']!r}"
    sentence = f"{where}{message}{got}"
    return sentence if sentence.endswith((".", "?")) else f"{sentence}."


def _unknown(name: str, model: type[BaseModel]) -> str:
    there = tuple(model.model_fields)
    what = "limit" if model is LimitsModel else "setting"
    return f"There is no {what} {name!r}; there are {', '.join(there)}.{did_you_mean(name, there)}"


def _out_of_range(model: type[BaseModel], name: str, value: Any) -> str:
    bounds = model.model_fields[name].metadata
    least = next(bound.ge for bound in bounds if hasattr(bound, "ge"))
    most = next(bound.le for bound in bounds if hasattr(bound, "le"))
    what = f"The limit {name}" if model is LimitsModel else name
    return f"{what} = {plain(value)} cannot work; it goes from {plain(least)} to {plain(most)}."
