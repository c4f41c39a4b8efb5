"""The catalogue of attacks, by what they are after. Every wall is held to all of them."""

from catalogue.attack import Attack, module_of, right_value
from catalogue.denial import DENIAL
from catalogue.forged_results import FORGED_RESULTS
from catalogue.interpreter import INTERPRETER
from catalogue.other_rows import LOOKS, OTHER_ROWS

ATTACKS: tuple[Attack, ...] = (*INTERPRETER, *OTHER_ROWS, *FORGED_RESULTS, *DENIAL)

__all__ = ["ATTACKS", "LOOKS", "Attack", "module_of", "right_value"]
