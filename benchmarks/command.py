"""The real command, as a user starts it: how fast it scores, how long it takes to start, how much memory it holds."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cases import Case

_LOOK_SECONDS = 0.02
_SELDOM_SECONDS = 0.25
_PEAK, _RESIDENT = "VmHWM:", "VmRSS:"


class Peaks(NamedTuple):
    """The most memory that was resident at once, in MB: of the command's own process and of its largest lane."""

    parent: float
    lane: float


class Look(NamedTuple):
    """What the lanes hold at a time, the largest of them: MB that are resident, and mappings."""

    memory: float
    mappings: int


class Held(NamedTuple):
    """What lanes held from one look to the next, and how long the command took."""

    looks: list[Look]
    seconds: float


def write_rows(path: Path, case: Case, count: int) -> Path:
    """Leaves that many rows at `path`."""
    with path.open("w", encoding="utf-8") as out:
        out.writelines(f"{line}\n" for line in case.lines(count))
    return path


def command(case: Case, data: Path, *flags: str) -> list[str]:
    """`evalcell run` on a case and its rows."""
    return [sys.executable, "-m", "evalcell", "run", str(case.path), "--data", str(data), "--json", *flags]


def summary(arguments: list[str]) -> dict[str, Any]:
    """Runs the command and gives what it says of the run.

    Raises:
        RuntimeError: The command failed.
    """
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"evalcell left with {done.returncode}:\n{done.stdout}{done.stderr}")
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def seconds(arguments: list[str], environment: Mapping[str, str]) -> float:
    """How long a command takes from its start to its end, as one who waits for it sees it."""
    started = time.perf_counter()
    subprocess.run(arguments, env=environment, capture_output=True, check=True)
    return time.perf_counter() - started


def peaks(arguments: list[str]) -> Peaks:
    """Runs the command and looks at its processes in /proc all the while.

    Not with `getrusage`: there a parent's peak includes its children's, and a child's that of the process it was
    forked from. What the kernel writes down as `VmHWM` is each process's own.
    """
    parent, lanes = 0.0, {0: 0.0}
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            parent = _peak(process.pid) or parent
            lanes |= {lane: peak for lane in _children(process.pid) if (peak := _peak(lane))}
            time.sleep(_LOOK_SECONDS)
    if process.returncode != 0:
        raise RuntimeError(f"evalcell left with {process.returncode}.")
    return Peaks(parent, max(lanes.values()))


def held(arguments: list[str]) -> Held:
    """Runs the command and looks at its lanes in /proc, a few times a second."""
    looks = []
    started = time.perf_counter()
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            lanes = [look for lane in _children(process.pid) if (look := _look(lane)) is not None]
            if lanes:
                looks.append(Look(max(look.memory for look in lanes), max(look.mappings for look in lanes)))
            time.sleep(_SELDOM_SECONDS)
    if process.returncode != 0:
        raise RuntimeError(f"evalcell left with {process.returncode}.")
    return Held(looks, time.perf_counter() - started)


def _look(pid: int) -> Look | None:
    try:
        mappings = len(Path(f"/proc/{pid}/maps").read_bytes().splitlines())
    except OSError:
        return None
    resident = _status(pid, _RESIDENT)
    return None if resident is None or not mappings else Look(resident, mappings)


def _peak(pid: int) -> float | None:
    return _status(pid, _PEAK)


def _status(pid: int, field: str) -> float | None:
    """MB of a process that /proc tells; None for one that has gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return None
    kibibytes = (int(line.split()[1]) for line in status.splitlines() if line.startswith(field))
    return next((value * 1024 / 1e6 for value in kibibytes), None)


def _children(pid: int) -> list[int]:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return []
