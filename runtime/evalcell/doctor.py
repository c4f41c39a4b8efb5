"""Looks after the installation: what is there, what is missing, and whether the walls hold when they are leant on."""

import contextlib
import platform
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalcell import disk
from evalcell.configuration import LimitsModel, Operator
from evalcell.data import data_path
from evalcell.errors import EvalcellError
from evalcell.evaluator import Evaluator
from evalcell.manifest import Manifest
from evalcell.records import Record
from evalcell.running import cores
from evalcell.runs import Order, start
from evalcell.settings import settle
from evalcell.version import __version__
from evalcell_sandboxes import Language, Progress, SandboxError, Version, names, sandbox, silent
from evalcell_sandboxes.caching import cache_path

_OPTIONAL = {"pyarrow": "Parquet, tables and data frames", "pandas": "to_pandas()", "polars": "to_polars()"}
_HANG_SECONDS = 0.5


class Check(Struct, frozen=True):
    """One thing that a wall promises, and whether it was so just now."""

    promise: str
    holds: bool
    found: str = ""


class Wall(Struct, frozen=True):
    """The state of one sandbox. `missing` says what it lacks, and how to get it."""

    name: str
    missing: str | None = None
    interpreter: str = ""
    versions: tuple[Version, ...] = ()
    checks: tuple[Check, ...] = ()
    slower_because: str | None = None
    remark: str | None = None

    @property
    def well(self) -> bool:
        return self.missing is None and all(check.holds for check in self.checks)


class Directory(Struct, frozen=True):
    """A directory that evalcell keeps things in; `size_bytes` is None while there is none."""

    purpose: str
    path: str
    size_bytes: int | None


class Disk(Struct, frozen=True):
    """What is kept because it was slow to make, by kind, and how much of it may be kept."""

    bytes: dict[str, int]
    budget_bytes: int
    source: str

    @property
    def total_bytes(self) -> int:
        return sum(self.bytes.values())


class Health(Struct, frozen=True):
    """The state of the installation."""

    evalcell: str
    python: str
    machine: str
    cores: int
    walls: tuple[Wall, ...]
    directories: tuple[Directory, ...]
    disk: Disk
    optional: dict[str, str | None]

    @property
    def well(self) -> bool:
        """Whether every sandbox of this version can be used, and holds."""
        return all(wall.well for wall in self.walls)


def examine(progress: Progress = silent) -> Health:
    """Looks at everything, and tries every wall that can be had here with code that leans on it."""
    return Health(
        evalcell=__version__,
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.machine()}",
        cores=cores(),
        walls=tuple(_wall(name, progress) for name in names()),
        directories=(_directory("cache", cache_path()), _directory("data", data_path())),
        disk=_disk(),
        optional={name: _version(name) for name in _OPTIONAL},
    )


def purpose(package: str) -> str:
    """What an optional package is good for."""
    return _OPTIONAL[package]


def _wall(name: str, progress: Progress) -> Wall:
    wall = sandbox(name)
    try:
        if (missing := wall.unavailable_reason()) is not None:
            return Wall(name, missing, versions=wall.versions())
        wall.prepare(None, progress)
        progress(f"Leaning on {name}")
        return Wall(
            name,
            interpreter=wall.interpreter,
            versions=wall.versions(),
            checks=tuple(_lean_on(name, next(iter(wall.languages)))),
            slower_because=wall.slower_because(),
            remark=wall.remark(),
        )
    except (SandboxError, EvalcellError, OSError) as error:
        return Wall(name, str(error))


def _disk() -> Disk:
    settled = settle(Manifest(), Operator())
    kept: dict[str, int] = {}
    with contextlib.suppress(SandboxError, OSError):  # which the walls have said already
        walls = [sandbox(name, settled.site) for name in names()]
        kept = disk.sizes(wall for wall in walls if wall.unavailable_reason() is None)
    return Disk(kept, settled.disk_bytes, settled.sources["disk_bytes"])


def _directory(purpose: str, path: Path) -> Directory:
    return Directory(purpose, str(path), _size(path) if path.is_dir() else None)


def _size(path: Path) -> int:
    total = 0
    for file in path.rglob("*"):
        with contextlib.suppress(OSError):  # what is gone by now, or not ours to see
            total += file.lstat().st_size
    return total


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# -- leaning on a wall: hostile code that says what it got hold of --------------------------------------------------
_PYTHON = """
import os, socket

rows_seen = 0

def evaluate(attempt, file, port):
    global rows_seen
    rows_seen += 1
    if attempt == "file":
        with open(file) as text:
            return text.read()
    if attempt == "environment":
        return {"score": 0.0, "label": os.environ.get("PATH", "empty")}
    if attempt == "network":
        with socket.create_connection(("127.0.0.1", port), 1):
            return "connected"
    while attempt == "hang":
        pass
    return rows_seen
"""
_TYPESCRIPT = """
let rowsSeen = 0;

async function evaluate({ attempt, file, port }: EvaluatorParams) {
  rowsSeen += 1;
  if (attempt === "file") {
    return Deno.readTextFileSync(file);
  }
  if (attempt === "environment") {
    return { score: 0, label: Deno.env.get("PATH") ?? "empty" };
  }
  if (attempt === "network") {
    return (await fetch(`http://127.0.0.1:${port}`)).statusText;
  }
  while (attempt === "hang");
  return rowsSeen;
}
"""
SOURCES = {Language.PYTHON: _PYTHON, Language.TYPESCRIPT: _TYPESCRIPT}

ATTEMPTS = ("score", "score", "file", "environment", "network", "hang", "score")
_CANARY = "canary"


def _lean_on(name: str, language: Language) -> Iterator[Check]:
    with canaries() as (file, port, hits):
        data = [{"attempt": attempt, "file": file, "port": port} for attempt in ATTEMPTS]
        operator = Operator(sandbox=name, limits=LimitsModel(wall_seconds=_HANG_SECONDS))
        with start(Order(_evaluator(language), data, operator)) as run:
            found = list(run.results())
        yield from judge(found, hits())


def _evaluator(language: Language) -> Evaluator:
    return Evaluator.from_source(SOURCES[language], name="doctor", language=language)


def judge(found: list[Record], hits: int) -> Iterator[Check]:
    """What the records of the attempts say about the wall around them, with how often the port was knocked at."""
    first, second, read, environment, network, hung, last = found
    yield _check("scores a row", first, lambda record: record.score == 1)
    yield _check("keeps files out of reach", read, lambda record: _raised(record) and _CANARY not in str(record))
    yield _check("shows no environment", environment, lambda record: record.label == "empty")
    yield _check("keeps the network out of reach", network, lambda record: _raised(record) and not hits)
    yield _check("stops an endless loop", hung, lambda record: _limit(record) == "wall_seconds")
    yield _check("starts every row fresh", second, lambda record: record.score == 1)
    yield _check("goes on after that", last, lambda record: record.score == 1)


def _check(promise: str, record: Record, holds: Callable[[Record], bool]) -> Check:
    if holds(record):
        return Check(promise, holds=True)
    found: Any = record.error.message if record.error else record.label or record.score
    return Check(promise, holds=False, found=str(found)[:200])


def _raised(record: Record) -> bool:
    return record.error is not None and record.error.kind == "raised"


def _limit(record: Record) -> str | None:
    return record.error.limit if record.error else None


@contextmanager
def canaries() -> Iterator[tuple[str, int, Callable[[], int]]]:
    """A file with a word in it, and a loopback port that counts who knocks."""
    hits = 0

    def count() -> None:
        nonlocal hits
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.close()
            hits += 1

    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file, socket.create_server(("127.0.0.1", 0)) as listener:
        file.write(_CANARY)
        file.flush()
        counter = threading.Thread(target=count, daemon=True)
        counter.start()
        try:
            yield file.name, listener.getsockname()[1], lambda: hits
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            counter.join(1)
