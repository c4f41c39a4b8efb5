"""What the tests of the walls share."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import shipping
from promises import lacking
from walls import WALLS, wall_of

from evalcell_sandboxes import FakeSandbox, Limits, Sandbox, sandbox
from evalcell_sandboxes.caching import cache_dir
from evalcell_sandboxes.stacks import start_with_plenty
from evalcell_sandboxes.wasm import snapshot


def _hooks(source: str) -> dict[str, Callable[..., Any]]:
    namespace: dict[str, Any] = {}
    exec(compile(source, "evaluator.py", "exec"), namespace)
    return namespace


@pytest.fixture(params=[*WALLS, "fake"])
def wall(request: pytest.FixtureRequest) -> Sandbox:
    """Every wall, and the fake, which keeps the same contract for honest code."""
    return FakeSandbox(_hooks) if request.param == "fake" else wall_of(request)


@pytest.fixture
def real_wall(wall: Sandbox) -> Sandbox:
    if isinstance(wall, FakeSandbox):
        pytest.skip("FakeSandbox has no wall, so it holds no limits")
    return wall


@pytest.fixture
def virtual_wall(real_wall: Sandbox) -> Sandbox:
    if real_wall.name != "wasm":
        pytest.skip("has a real clock, real entropy and addresses that differ")
    return real_wall


@pytest.fixture
def wasm_wall(real_wall: Sandbox) -> Sandbox:
    if real_wall.name != "wasm":
        pytest.skip("meddles with the WebAssembly guest's own modules")
    return real_wall


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


@pytest.fixture(scope="session")
def deno() -> Sandbox:
    """The wall that speaks TypeScript alone."""
    return sandbox("deno")


@pytest.fixture(scope="session")
def plain_limits() -> Limits:
    return Limits()
