"""The attacks in TypeScript, held against every wall that speaks it."""

from catalogue.typescript.denial import DENIAL
from catalogue.typescript.forged_results import FORGED_RESULTS
from catalogue.typescript.interpreter import INTERPRETER
from catalogue.typescript.other_rows import LOOKS, OTHER_ROWS

ATTACKS = (*INTERPRETER, *OTHER_ROWS, *FORGED_RESULTS, *DENIAL)

__all__ = ["ATTACKS", "LOOKS"]
