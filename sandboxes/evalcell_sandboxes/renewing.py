"""A session that makes anew what its program runs in whenever that is lost, and gives up where that never works."""

from abc import abstractmethod

from evalcell_sandboxes.outcome import Crashed, Outcome, Returned
from evalcell_sandboxes.sandbox import Session

_MOST_FAILED_LOADS = 3


class RenewingSession(Session):
    """What such sessions share. Each wall says how it loads, fits, and looks whether there is something to run in."""

    def __init__(self) -> None:
        self._loaded: Outcome = Crashed(message="the module was not loaded yet")
        self._fitted_on: bytes | None = None
        self._failed_loads = 0

    @property
    def loaded(self) -> Outcome:
        return self._loaded

    @abstractmethod
    def _is_there(self) -> bool:
        """Whether there is something to run in, in which the module is loaded."""

    @abstractmethod
    def _load(self) -> Outcome:
        """Executes the module in something new."""

    @abstractmethod
    def _fit(self) -> Outcome:
        """Calls `fit` there, with the rows in `_fitted_on`."""

    @abstractmethod
    def _abandon(self) -> None:
        """Sees to it that nothing runs in what was only half made."""

    def _ready(self) -> Outcome:
        """Sees to it that there is something to run in."""
        return self._loaded if self._is_there() else self._renew()

    def _renew(self) -> Outcome:
        """Loads the module anew, and fits it where `fit` was called.

        A module that loaded once and then fails again and again is given up on: it must not cost its limit a row.
        """
        if self._failed_loads >= _MOST_FAILED_LOADS:
            return self._loaded
        ready = self._load()
        if self._fitted_on is not None and isinstance(ready, Returned):
            ready = self._fit()
        return self._checked(ready)

    def _checked(self, ready: Outcome) -> Outcome:
        """Counts how often it could not be made ready."""
        if isinstance(ready, Returned):
            self._failed_loads = 0
            return ready
        self._abandon()
        self._failed_loads += 1
        if self._failed_loads >= _MOST_FAILED_LOADS:
            self._loaded = ready
        return ready
