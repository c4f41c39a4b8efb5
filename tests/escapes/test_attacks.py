"""Every attack of the catalogue, on every wall: what becomes of it, and that it succeeds where there is none.

Three rows are run: an honest one, the attack's, an honest one. Whatever the attack tries, its own outcome is of the
kind it should be and comes in time, no canary has moved, and the row after it is right.
"""

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from canaries import Canaries, canaries_in, has_ipv6
from catalogue import ATTACKS, LOOKS, Attack, module_of, right_value
from catalogue.attack import returned_true
from catalogue.container import in_container, shows
from unsandboxed import run_unsandboxed
from walls import WALLS, again_if_killed, wall_of

from evalcell_sandboxes import (
    Confinement,
    Exceeded,
    Isolation,
    Limits,
    Outcome,
    Program,
    Raised,
    Returned,
    Sandbox,
    Session,
)
from evalcell_sandboxes.stacks import start_with_plenty

GRACE_SECONDS = 2.0
MOST_OUTCOME_BYTES = 3 * 1024**2
"""What an outcome may weigh under the default limits, its prints escaped as badly as can be."""
CLOCK_START_NS = 1_700_000_000 * 10**9


@pytest.fixture(params=WALLS)
def wall(request) -> Sandbox:
    return wall_of(request)


class Sessions:
    """One session for all attacks of the same limits on a wall: a container need not be started for each of them, and
    an attack has the rows of all those before it to spoil. One in which something went wrong is not used again.
    """

    def __init__(self) -> None:
        self._opened: dict[object, tuple[Session, ExitStack]] = {}

    @contextmanager
    def lent(self, wall: Sandbox, attack: Attack) -> Iterator[Session]:
        key = (wall.name, wall.site, attack.top, tuple(attack.limits.items()))
        if key not in self._opened:
            stack = ExitStack()
            self._opened[key] = stack.enter_context(opened(wall, attack, *_like(attack))), stack
        try:
            yield self._opened[key][0]
        except BaseException:
            self._opened.pop(key)[1].close()
            raise

    def close(self) -> None:
        for _, stack in self._opened.values():
            stack.close()


def _like(attack: Attack) -> list[Attack]:
    """The others that can stand in one module with it."""
    if attack.top:
        return []
    return [other for other in ATTACKS if not other.top and other.limits == attack.limits and other.name != attack.name]


@pytest.fixture(scope="module")
def sessions() -> Iterator[Sessions]:
    with closing(Sessions()) as sessions:
        yield sessions


@pytest.fixture
def canaries(tmp_path: Path) -> Iterator[Canaries]:
    with canaries_in(tmp_path / "canaries") as canaries:
        yield canaries


@pytest.fixture
def nonces() -> list[str]:
    return [f"nonce-{secrets.token_hex(8)}" for _ in range(3)]


@dataclass(frozen=True)
class Ran:
    """The three outcomes behind a wall, and how long the attack's row took."""

    before: Outcome
    attack: Outcome
    after: Outcome
    seconds: float


def rows_of(attack: Attack, nonces: list[str], canaries: Canaries) -> list[dict]:
    before, own, after = nonces
    return [{"nonce": before}, {"nonce": own, "attack": attack.name, "loot": canaries.loot}, {"nonce": after}]


@contextmanager
def opened(wall: Sandbox, attack: Attack, *others: Attack, isolation: Isolation = Isolation.ROW) -> Iterator[Session]:
    program = Program(source=module_of(attack, *others), filename="attack.py")
    confinement = Confinement(limits=limits_of(attack), isolation=isolation, seed=7, clock_start_ns=CLOCK_START_NS)
    with wall.open(program, confinement) as session:
        assert isinstance(session.loaded, Returned), session.loaded
        yield session


def run_in(lend: Callable[[], AbstractContextManager[Session]], wall: Sandbox, rows: list[dict]) -> Ran:
    """Runs the three rows as a lane does that gets them one by one: it takes each outcome and asks no further.

    On a thread with plenty of stack, as lanes have it.
    """
    ran: list[Ran] = []

    def timed(session: Session, row: dict) -> tuple[Outcome, float]:
        started = time.monotonic()
        return next(session.run([json.dumps(row).encode()])), time.monotonic() - started

    def three() -> Ran:
        with lend() as session:
            (before, _), (attacked, seconds), (after, _) = (timed(session, row) for row in rows)
        return Ran(before, attacked, after, seconds)

    start_with_plenty(lambda: ran.append(again_if_killed(wall, three)), "attack").join()
    return ran[0]


def limits_of(attack: Attack) -> Limits:
    return Limits(**{"wall_seconds": 5.0, **attack.limits})


def assert_right(outcome: Outcome, nonce: str) -> None:
    assert isinstance(outcome, Returned), outcome
    assert json.loads(outcome.value) == right_value(nonce)
    assert outcome.stdout == f"honest {nonce}\n"


def assert_kind(outcome: Outcome, attack: Attack) -> None:
    assert isinstance(outcome, attack.outcomes), outcome
    name = outcome.limit if isinstance(outcome, Exceeded) else outcome.exception if isinstance(outcome, Raised) else ""
    assert not (attack.names and name) or name in attack.names, outcome


def assert_value(outcome: Outcome, attack: Attack) -> None:
    """What came back is what it should be; an attack that can only be told from inside says that it got nothing."""
    if not isinstance(outcome, Returned):
        return
    if attack.succeeded is returned_true:
        assert json.loads(outcome.value) is not True
    if attack.carried is not None:
        assert outcome.value.decode() == attack.carried


def assert_silent(canaries: Canaries, outcome: Outcome) -> None:
    assert canaries.secret not in repr(outcome)
    assert canaries.listener.hits == 0
    assert not canaries.files_touched
    assert not canaries.victim_dead


def assert_nothing_of_ours(outcome: Outcome) -> None:
    """A traceback holds the lines of the user's own file, and no path of the host or of the guest."""
    if isinstance(outcome, Raised):
        assert not [line for line in outcome.traceback.splitlines() if 'File "' in line and '"attack.py"' not in line]


def needs_what_is_here(attack: Attack) -> None:
    if attack.name == "connect-tcp6" and not has_ipv6():
        pytest.skip("there is no IPv6 loopback to listen on")


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_no_attack_gets_through(wall, attack, sessions, canaries, nonces):
    expected = in_container(attack, gvisor=bool(wall.site.runtime)) if wall.name == "container" else attack
    ran = run_in(lambda: sessions.lent(wall, attack), wall, rows_of(attack, nonces, canaries))
    assert_kind(ran.attack, expected)
    if wall.name != "container" or not shows(attack):
        assert_value(ran.attack, expected)
    assert ran.seconds < limits_of(attack).wall_seconds + GRACE_SECONDS
    assert_silent(canaries, ran.attack)
    assert_nothing_of_ours(ran.attack)
    assert len(msgspec.json.encode(ran.attack)) < MOST_OUTCOME_BYTES
    assert nonces[0] not in repr(ran.attack)
    assert nonces[2] not in repr(ran.attack)
    assert nonces[1] not in repr(ran.after)
    assert_right(ran.before, nonces[0])
    assert_right(ran.after, nonces[2])


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_without_a_wall_the_same_attack_succeeds(attack, canaries, nonces, tmp_path):
    needs_what_is_here(attack)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    rows = rows_of(attack, nonces, canaries)
    run = run_unsandboxed(module_of(attack), rows, canaries, scratch, endless=attack.endless)
    assert run.rows.get(0, {}).get("result") == right_value(nonces[0]), run.stderr
    assert attack.succeeded(run), run


def test_code_that_attacks_nothing_does_not_pass_for_an_attack(canaries, nonces, tmp_path):
    """The controls can fail: of runs that did no harm, none counts as a success by all."""
    runs = []
    for number, (body, endless) in enumerate(
        (("return 'idle'", False), ("raise ValueError", False), ("return 0", True))
    ):
        scratch = tmp_path / f"scratch{number}"
        scratch.mkdir()
        idle = Attack("idle", body, (Returned, Raised), lambda run: False)
        rows = rows_of(idle, nonces, canaries)
        runs.append(run_unsandboxed(module_of(idle), rows, canaries, scratch, endless=endless))
    assert [attack.name for attack in ATTACKS if all(attack.succeeded(run) for run in runs)] == []


@pytest.mark.parametrize("attack", LOOKS, ids=lambda attack: attack.name)
def test_where_rows_share_state_on_purpose_they_see_each_other(wall, attack, canaries, nonces):
    if wall.name == "container" and attack.name == "look-answers":
        pytest.skip("what a row has printed is taken away before the next one starts")
    rows = rows_of(attack, nonces, canaries)
    ran = run_in(lambda: opened(wall, attack, isolation=Isolation.EVALUATOR), wall, rows)
    assert nonces[0] in repr(ran.attack)


def test_every_attack_has_a_name_of_its_own():
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS)
    assert len(ATTACKS) >= 80
