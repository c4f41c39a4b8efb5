"""Everything that decides the result of a run, as a value that can be sent to a lane."""

from msgspec import Struct

from evalcell.binding import Binding
from evalcell.output import Output
from evalcell_sandboxes import Confinement, Program, Site


class Plan(Struct, frozen=True):
    """What a lane needs to take raw rows to records.

    `fit_rows` is None where the file defines no `fit`, and `aggregates` says whether it defines `aggregate`.
    """

    evaluator: str
    version: str
    sandbox: str
    program: Program
    confinement: Confinement
    bindings: tuple[Binding, ...]
    output: Output
    id_path: str | None = None
    fit_rows: int | None = None
    aggregates: bool = False
    site: Site = Site()
