"""Reads the metadata block of an evaluator file, strictly. People write it, so every mistake gets its own sentence."""

import math
from typing import Annotated, Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, BaseModel, Field, JsonValue, ValidationError, model_validator

from evalcell.configuration import LimitsModel, Requirement, Strict, Variables, wall
from evalcell.errors import EvaluatorError, did_you_mean
from evalcell.manifest import Manifest
from evalcell.output import Output
from evalcell_sandboxes import Isolation, Network


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        raise ValueError(f"{text!r} is not a version specifier such as '>=3.11'") from None
    return text


class OutputModel(Strict):
    """`[tool.evalcell] output = {...}`."""

    type: Literal["continuous", "categorical", "freeform"] | None = None
    range: tuple[float, float] | None = None
    labels: dict[str, Annotated[float, Field(allow_inf_nan=False)] | None] | list[str] | None = None
    direction: Literal["maximize", "minimize"] = "maximize"
    threshold: Annotated[float, Field(allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _coherent(self) -> "OutputModel":
        if self.range is not None and self.labels is not None:
            raise ValueError("range belongs to a continuous score and labels to a categorical one: keep one of the two")
        if self.type == "categorical" and not self.labels:
            raise ValueError("a categorical output needs its labels, such as labels = {good = 1.0, bad = 0.0}")
        if self.type in ("categorical", "freeform") and self.range is not None:
            raise ValueError(f"a {self.type} output has no range")
        if self.type in ("continuous", "freeform") and self.labels is not None:
            raise ValueError(f"a {self.type} output has no labels")
        if self.range is not None and not self.range[0] < self.range[1]:
            raise ValueError(f"range goes from the lower bound to the higher one, not {list(self.range)}")
        return self

    def configuration(self) -> Output:
        """The value that the runtime works with."""
        low, high = self.range or (-math.inf, math.inf)
        labels = dict.fromkeys(self.labels) if isinstance(self.labels, list) else self.labels or {}
        kind = self.type or ("continuous" if self.range else "categorical" if labels else "freeform")
        return Output(kind=kind, low=low, high=high, labels=labels, direction=self.direction, threshold=self.threshold)


class ManifestModel(Strict):
    """`[tool.evalcell]` with `dependencies` and `requires-python` beside it."""

    dependencies: tuple[Requirement, ...] = ()
    requires_python: Annotated[str, AfterValidator(_specifier)] | None = None
    output: OutputModel | None = None
    bind: dict[str, str] = {}
    set: dict[str, JsonValue] = {}
    limits: LimitsModel = LimitsModel()
    isolation: Isolation | None = None
    sandbox: Annotated[str, AfterValidator(wall)] | None = None
    fit_rows: Annotated[int, Field(gt=0)] | None = None
    assets: tuple[str, ...] = ()
    env: Variables = ()
    network: Network | None = None

    def manifest(self) -> Manifest:
        """The value that the runtime works with."""
        values = {name: getattr(self, name) for name in ManifestModel.model_fields}
        values["output"] = None if self.output is None else self.output.configuration()
        values["limits"] = self.limits.said()
        return Manifest(**values)


_BLOCK_KEYS = ("dependencies", "requires-python", "tool")
_TOOL_KEYS = tuple(name for name in ManifestModel.model_fields if name not in ("dependencies", "requires_python"))


def read(table: dict[str, Any], line: int) -> Manifest:
    """Validates the table of a metadata block that starts on that line.

    Raises:
        EvaluatorError: An unknown key, or a value that makes no sense; the message names it.
    """
    where = f"The metadata block on line {line}"
    for key in table:
        if key not in _BLOCK_KEYS:
            raise EvaluatorError("metadata", f"{where} has an unknown key {key!r}.{did_you_mean(key, _BLOCK_KEYS)}")
    tool = table.get("tool", {})
    if not isinstance(tool, dict):
        raise EvaluatorError("metadata", f"{where}: tool must be a table.")
    if "uv" in tool:
        raise EvaluatorError("metadata", f"{where} has [tool.uv]: where packages come from is the operator's to say.")
    own = tool.get("evalcell", {})
    if not isinstance(own, dict):
        raise EvaluatorError("metadata", f"{where}: tool.evalcell must be a table.")
    values = {key: table[key] for key in ("dependencies",) if key in table}
    if "requires-python" in table:
        values["requires_python"] = table["requires-python"]
    misplaced = [key for key in own if key not in _TOOL_KEYS]
    if misplaced:
        hint = did_you_mean(misplaced[0], _TOOL_KEYS)
        raise EvaluatorError("metadata", f"{where}: [tool.evalcell] has an unknown key {misplaced[0]!r}.{hint}")
    try:
        return ManifestModel.model_validate({**own, **values}).manifest()
    except ValidationError as error:
        raise EvaluatorError("metadata", f"{where}: {_first_problem(error)}") from None


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        models: dict[str, type[BaseModel]] = {"limits": LimitsModel, "output": OutputModel}
        model = models.get(str(problem["loc"][0]), ManifestModel)
        hint = did_you_mean(str(problem["loc"][-1]), tuple(model.model_fields))
        return f"unknown key {where!r}.{hint}"
    message = problem["msg"].removeprefix("Value error, ")
    return (
        f"{where}: {message}, got {problem['input']!r}" if problem["type"] != "value_error" else f"{where}: {message}"
    )
