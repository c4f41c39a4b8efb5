"""What an evaluator file asks for. It is the author's word: nothing of it is granted yet."""

from typing import Any

from msgspec import Struct

from evalcell.output import Output
from evalcell_sandboxes import Isolation, Network


class Manifest(Struct, frozen=True):
    """The validated metadata block; `blocks` reads it. None and empty where the file says nothing."""

    dependencies: tuple[str, ...] = ()
    requires_python: str | None = None
    output: Output | None = None
    bind: dict[str, str] = {}
    set: dict[str, Any] = {}
    limits: dict[str, float] = {}
    isolation: Isolation | None = None
    sandbox: str | None = None
    fit_rows: int | None = None
    assets: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    network: Network | None = None
