"""What the tests of the walls share."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import shipping
from promises import lacking

from evalcell_sandboxes.caching import cache_dir
from evalcell_sandboxes.stacks import start_with_plenty
from evalcell_sandboxes.wasm import snapshot


@pytest.fixture
def restoring() -> None:
    """Memory is put back on this machine."""
    if not snapshot.works_here():
        lacking("memory cannot be put back here: every row gets an instance of its own")


@pytest.fixture(scope="session", autouse=True)
def tidy_store() -> Iterator[None]:
    """Removes the assets that tests have put into the store."""
    yield
    for digest in shipping.made:
        (cache_dir() / "assets" / digest).unlink(missing_ok=True)


@pytest.fixture(scope="session")
def plenty() -> Callable[[Callable[[], Any]], Any]:
    """Calls a function on a thread with the stack that lanes have, and gives or raises what it does."""

    def call(function: Callable[[], Any]) -> Any:
        ended: list[tuple[Any, BaseException | None]] = []

        def work() -> None:
            try:
                ended.append((function(), None))
            except BaseException as error:  # noqa: BLE001 - raised again where the test is
                ended.append((None, error))

        start_with_plenty(work, "test").join()
        answer, error = ended[0]
        if error is not None:
            raise error
        return answer

    return call
