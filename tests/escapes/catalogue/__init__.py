"""The catalogue of attacks, by what they are after. Every wall is held to all of those in the languages that it speaks."""

from catalogue import typescript
from catalogue.attack import Attack, module_of, right_value
from catalogue.denial import DENIAL
from catalogue.forged_results import FORGED_RESULTS
from catalogue.interpreter import INTERPRETER
from catalogue.other_rows import LOOKS as PYTHON_LOOKS
from catalogue.other_rows import OTHER_ROWS

ATTACKS: tuple[Attack, ...] = (*INTERPRETER, *OTHER_ROWS, *FORGED_RESULTS, *DENIAL, *typescript.ATTACKS)
LOOKS: tuple[Attack, ...] = (*PYTHON_LOOKS, *typescript.LOOKS)

__all__ = ["ATTACKS", "LOOKS", "Attack", "module_of", "right_value"]
