"""What is run behind a wall, and how tightly it is held."""

from enum import StrEnum

from msgspec import Struct


class Language(StrEnum):
    """The languages an evaluator may be written in."""

    PYTHON = "python"
    TYPESCRIPT = "typescript"


class Isolation(StrEnum):
    """From which state a row starts: right after the module was loaded, or as the row before it left things."""

    ROW = "row"
    EVALUATOR = "evaluator"


class Network(StrEnum):
    """What the code behind the wall may reach."""

    NONE = "none"
    FULL = "full"


class Limits(Struct, frozen=True):
    """What a program may use up. The one place that states the defaults."""

    wall_seconds: float = 10.0
    load_seconds: float = 60.0
    fit_seconds: float = 60.0
    aggregate_seconds: float = 60.0
    memory_bytes: int = 512 * 1024**2
    stdout_bytes: int = 64 * 1024
    stderr_bytes: int = 64 * 1024
    result_bytes: int = 1024**2
    source_bytes: int = 1024**2
    asset_bytes: int = 64 * 1024**2


class Asset(Struct, frozen=True):
    """A file shipped beside the evaluator, named by its content."""

    name: str
    sha256: str


class Program(Struct, frozen=True):
    """Code to load: everything that decides what it does, and nothing about how it is held."""

    source: str
    filename: str
    language: Language = Language.PYTHON
    lock: str = ""
    assets: tuple[Asset, ...] = ()


class Confinement(Struct, frozen=True):
    """How a program is held while it runs. Shown without the values that it was granted.

    `environment` holds values, not names: they travel in the message that opens the session and are never in a
    worker's own environment. `seed` and `clock_start_ns` decide all that the guest can observe of chance and time.
    """

    limits: Limits = Limits()
    isolation: Isolation = Isolation.ROW
    network: Network = Network.NONE
    environment: dict[str, str] = {}
    seed: int = 0
    clock_start_ns: int = 0

    def __repr__(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name != "environment"]
        return f"Confinement({', '.join(shown)}, environment={list(self.environment)})"
