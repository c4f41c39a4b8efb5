"""Keeps what was made once within a budget: what was not used for longest goes first, and nothing in use ever goes."""

from collections.abc import Iterable
from typing import Protocol

from evalcell_sandboxes import Progress, SandboxError, assets
from evalcell_sandboxes.disk import Kept


class Keeper(Protocol):
    """Whoever keeps something on disk."""

    def kept(self) -> list[Kept]: ...
    def discard(self, item: Kept) -> bool: ...


def sizes(walls: Iterable[Keeper]) -> dict[str, int]:
    """How many bytes these walls and the assets take up, by kind."""
    found: dict[str, int] = {}
    for _, item in _all(walls):
        found[item.kind] = found.get(item.kind, 0) + item.size_bytes
    return found


def prune(walls: Iterable[Keeper], budget_bytes: int) -> list[Kept]:
    """Removes what was not used for longest until the rest is within the budget, or in use. Says what has gone."""
    found = sorted(_all(walls), key=lambda found: found[1].used)  # those used at the same time stay in their order
    total, gone = sum(item.size_bytes for _, item in found), []
    for keeper, item in found:
        if total <= budget_bytes:
            break
        if _discarded(keeper, item):
            total -= item.size_bytes
            gone.append(item)
    return gone


def _discarded(keeper: Keeper, item: Kept) -> bool:
    """What cannot be removed now stays: there is nothing the matter with the run that wanted the room."""
    try:
        return keeper.discard(item)
    except (SandboxError, OSError):
        return False


def _all(walls: Iterable[Keeper]) -> list[tuple[Keeper, Kept]]:
    return [(keeper, item) for keeper in (*walls, assets) for item in keeper.kept()]


class Noting:
    """Passes on what slow work is under way, and notes that there was any: then there is more on disk than before."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.worked = False

    def __call__(self, step: str, fraction: float | None = None) -> None:
        self.worked = True
        self._progress(step, fraction)
