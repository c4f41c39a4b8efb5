"""For what comes about by itself, sooner or later."""

import time
from collections.abc import Callable


def until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Waits until it holds, and says whether it does."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()
