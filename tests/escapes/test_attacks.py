"""Every attack of the catalogue, on every wall: what becomes of it, and that it succeeds where there is none.

Three rows are run: an honest one, the attack's, an honest one. Whatever the attack tries, its own outcome is of the
kind it should be and comes in time, no canary has moved, and the row after it is right.
"""

import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from canaries import Canaries, canaries_in, has_ipv6
from catalogue import ATTACKS, LOOKS, Attack, module_of, right_value
from catalogue.attack import returned_true
from catalogue.container import in_container, shows
from unsandboxed import run_unsandboxed
from walls import PYTHON_WALLS, TYPESCRIPT_WALLS, again_if_killed, wall_of

from evalcell_sandboxes import (
    Confinement,
    Exceeded,
    Isolation,
    Language,
    Limits,
    Outcome,
    Program,
    Raised,
    Returned,
    Sandbox,
    Session,
)
from evalcell_sandboxes.deno.process import GUEST
from evalcell_sandboxes.stacks import PLENTY_BYTES

GRACE_SECONDS = 2.0
MOST_OUTCOME_BYTES = 3 * 1024**2
"""What an outcome may weigh under the default limits, its prints escaped as badly as can be."""
MOST_TRACEBACK_CHARACTERS = 16_000
"""Where a traceback is cut, in the middle of a line if need be."""
CLOCK_START_NS = 1_700_000_000 * 10**9
IDLE = {
    Language.PYTHON: (("return 'idle'", False), ("raise ValueError", False), ("return 0", True)),
    Language.TYPESCRIPT: (("return 'idle';", False), ("throw new Error();", False), ("return 0;", True)),
}
WALLS_OF = {Language.PYTHON: PYTHON_WALLS, Language.TYPESCRIPT: TYPESCRIPT_WALLS}
FILENAMES = {Language.PYTHON: "attack.py", Language.TYPESCRIPT: "attack.ts"}


def on_every_wall(attacks: tuple[Attack, ...]) -> pytest.MarkDecorator:
    """Each attack on each wall that speaks its language."""
    cases = [
        pytest.param(wall, attack, id=f"{attack.name}-{wall}")
        for attack in attacks
        for wall in WALLS_OF[attack.language]
    ]
    return pytest.mark.parametrize(("wall", "attack"), cases, indirect=["wall"])


def id_of(attack: Attack) -> str:
    return f"{attack.name}-{attack.language}"


@pytest.fixture
def wall(request) -> Sandbox:
    return wall_of(request)


class Sessions:
    """One session for all attacks of the same limits on a wall: a container need not be started for each of them, and
    an attack has the rows of all those before it to look for. One in which something went wrong is not used again.
    """

    def __init__(self) -> None:
        self._opened: dict[object, tuple[Session, ExitStack]] = {}

    @contextmanager
    def lent(self, wall: Sandbox, attack: Attack) -> Iterator[Session]:
        together = _together(attack)
        key = (wall.name, wall.site, tuple(each.name for each in together))
        if key not in self._opened:
            stack = ExitStack()
            self._opened[key] = stack.enter_context(opened(wall, *together)), stack
        try:
            yield self._opened[key][0]
        except BaseException:
            self._opened.pop(key)[1].close()
            raise

    def close(self) -> None:
        with ExitStack() as all_of_them:
            for _, stack in self._opened.values():
                all_of_them.callback(stack.close)


def _together(attack: Attack) -> list[Attack]:
    """Those that stand in one module with it, and itself."""
    if attack.top:
        return [attack]
    alike = [other for other in ATTACKS if other.language is attack.language and other.limits == attack.limits]
    return [other for other in alike if not other.top]


@pytest.fixture(scope="module")
def on_a_lane() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Does things on a thread like a lane's: one for all, since sessions belong to theirs, with plenty of stack."""
    with ThreadPoolExecutor(1) as executor:
        before = threading.stack_size(PLENTY_BYTES)
        executor.submit(int).result()  # with which its thread is started
        threading.stack_size(before)
        yield lambda work: executor.submit(work).result()


@pytest.fixture(scope="module")
def sessions(on_a_lane) -> Iterator[Sessions]:
    sessions = Sessions()
    yield sessions
    on_a_lane(sessions.close)


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
def opened(wall: Sandbox, *attacks: Attack, isolation: Isolation = Isolation.ROW) -> Iterator[Session]:
    """A session with a module that has these attacks, all of the same limits."""
    program = Program(source=module_of(*attacks), filename=FILENAMES[attacks[0].language])
    confinement = Confinement(limits=limits_of(attacks[0]), isolation=isolation, seed=7, clock_start_ns=CLOCK_START_NS)
    with wall.open(program, confinement) as session:
        assert isinstance(session.loaded, Returned), session.loaded
        yield session


def run_in(session: Session, rows: list[dict]) -> Ran:
    """Runs the three rows as a lane does that gets them one by one: it takes each outcome and asks no further."""

    def timed(row: dict) -> tuple[Outcome, float]:
        started = time.monotonic()
        return next(session.run([json.dumps(row).encode()])), time.monotonic() - started

    (before, _), (attacked, seconds), (after, _) = (timed(row) for row in rows)
    return Ran(before, attacked, after, seconds)


def limits_of(attack: Attack) -> Limits:
    return Limits(**{"wall_seconds": 5.0, **attack.limits})


def assert_right(outcome: Outcome, nonce: str, language: Language) -> None:
    assert isinstance(outcome, Returned), outcome
    assert json.loads(outcome.value) == right_value(nonce, language)
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


def assert_nothing_of_ours(outcome: Outcome, language: Language) -> None:
    """A traceback holds the lines of the user's own file, and no path of the host or of the guest."""
    if not isinstance(outcome, Raised):
        return
    lines = outcome.traceback.splitlines()[: -1 if len(outcome.traceback) >= MOST_TRACEBACK_CHARACTERS else None]
    frames = [line for line in lines if 'File "' in line or line.startswith("    at ")]
    assert not [line for line in frames if not re.search(r'File "attack\.py"|attack\.ts:\d+:\d+\)?$', line)]
    if language is Language.TYPESCRIPT:  # in Python a traceback shows lines of the source too, which say what they like
        assert not re.search(r"file://|node:|ext:|evalcell:|worker\.js|prelude", outcome.traceback)
    assert str(GUEST) not in repr(outcome)


def needs_what_is_here(attack: Attack) -> None:
    if attack.name == "connect-tcp6" and not has_ipv6():
        pytest.skip("there is no IPv6 loopback to listen on")


@on_every_wall(ATTACKS)
def test_no_attack_gets_through(wall, attack, on_a_lane, sessions, canaries, nonces):
    expected = in_container(attack, gvisor=bool(wall.site.runtime)) if wall.name == "container" else attack

    def attempt() -> None:
        with sessions.lent(wall, attack) as session:
            assert_nothing_gained(run_in(session, rows_of(attack, nonces, canaries)), expected, wall, canaries, nonces)

    on_a_lane(lambda: again_if_killed(wall, attempt) if Exceeded in expected.outcomes else attempt())


def assert_nothing_gained(ran: Ran, attack: Attack, wall: Sandbox, canaries: Canaries, nonces: list[str]) -> None:
    assert_kind(ran.attack, attack)
    if wall.name != "container" or not shows(attack):
        assert_value(ran.attack, attack)
    assert ran.seconds < limits_of(attack).wall_seconds + GRACE_SECONDS
    assert_silent(canaries, ran.attack)
    assert_nothing_of_ours(ran.attack, attack.language)
    assert len(msgspec.json.encode(ran.attack)) < MOST_OUTCOME_BYTES
    assert set(re.findall(r"nonce-[0-9a-f]{16}", repr(ran.attack))) <= {nonces[1]}, "it saw other rows"
    assert nonces[1] not in repr(ran.after)
    assert_right(ran.before, nonces[0], attack.language)
    assert_right(ran.after, nonces[2], attack.language)


@pytest.mark.control
@pytest.mark.parametrize("attack", ATTACKS, ids=id_of)
def test_without_a_wall_the_same_attack_succeeds(attack, canaries, nonces, tmp_path):
    needs_what_is_here(attack)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    rows = rows_of(attack, nonces, canaries)
    run = run_unsandboxed(module_of(attack), attack.language, rows, canaries, scratch, endless=attack.endless)
    assert run.rows.get(0, {}).get("result") == right_value(nonces[0], attack.language), run.stderr
    assert attack.succeeded(run), run


@pytest.mark.parametrize("language", Language)
def test_code_that_attacks_nothing_does_not_pass_for_an_attack(language, canaries, nonces, tmp_path):
    """The controls can fail: of runs that did no harm, none counts as a success by all."""
    runs = []
    for number, (body, endless) in enumerate(IDLE[language]):
        scratch = tmp_path / f"scratch{number}"
        scratch.mkdir()
        idle = Attack("idle", body, (Returned, Raised), lambda run: False, language=language)
        rows = rows_of(idle, nonces, canaries)
        runs.append(run_unsandboxed(module_of(idle), language, rows, canaries, scratch, endless=endless))
    attacks = [attack for attack in ATTACKS if attack.language is language]
    assert [attack.name for attack in attacks if all(attack.succeeded(run) for run in runs)] == []


@on_every_wall(LOOKS)
def test_where_rows_share_state_on_purpose_they_see_each_other(wall, attack, on_a_lane, canaries, nonces):
    if wall.name == "container" and attack.name == "look-answers":
        pytest.skip("what a row has printed is taken away before the next one starts")

    def look() -> None:
        with opened(wall, attack, isolation=Isolation.EVALUATOR) as session:
            assert nonces[0] in repr(run_in(session, rows_of(attack, nonces, canaries)).attack)

    on_a_lane(look)


def test_every_attack_has_a_name_of_its_own():
    assert len(set(map(id_of, ATTACKS))) == len(ATTACKS)
    for language, least in ((Language.PYTHON, 80), (Language.TYPESCRIPT, 150)):
        assert sum(attack.language is language for attack in ATTACKS) >= least
