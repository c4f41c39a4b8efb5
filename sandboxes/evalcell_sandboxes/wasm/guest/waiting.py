"""An event loop for a world where nothing happens outside: timers advance the virtual clock, nothing else can."""

import asyncio
import time


class _Timers:
    """Stands where an event loop keeps its selector. There are no sockets to select from: waiting is sleeping."""

    def select(self, timeout):
        if timeout is None:
            raise RuntimeError("evaluate awaits something that nothing in the sandbox will ever complete")
        if timeout > 0:
            time.sleep(timeout)
        return []

    def get_map(self):
        return {}

    def close(self):
        pass


class Loop(asyncio.BaseEventLoop):
    """Runs coroutines, tasks, gather and sleep; sockets, pipes, threads and processes do not exist here."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Timers()

    def _process_events(self, event_list) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def install() -> None:
    """Makes `asyncio.run` in user code work on such a loop.

    The bindings around us run inside a loop of their own and say so; user code stands outside it.
    """
    asyncio._set_running_loop(None)
    asyncio.new_event_loop = asyncio.events.new_event_loop = Loop
    asyncio.runners.events.new_event_loop = Loop


def finish(coroutine):
    """Runs a coroutine to its end on a loop of its own and gives its result."""
    loop = Loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(coroutine)
    finally:
        asyncio.set_event_loop(None)
        loop.close()
