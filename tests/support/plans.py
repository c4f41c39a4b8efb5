"""Plans of nothing in particular, for what is tested apart from any sandbox."""

from typing import Any

from evalcell.binding import Binding
from evalcell.output import Output
from evalcell.plan import Plan
from evalcell_sandboxes import Confinement, Program


def plan(output: Output | None = None, *bindings: Binding, **others: Any) -> Plan:
    """A plan with that output and those bindings; else any number will do, and `output` takes the field of its name."""
    return Plan(
        evaluator="some",
        version="0",
        sandbox="wasm",
        program=Program(source="", filename="some.py"),
        confinement=Confinement(),
        bindings=bindings or (Binding("output", path="output"),),
        output=output or Output(),
        **others,
    )
