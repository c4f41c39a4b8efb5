"""What is true of an instance that is put back after every row: its bytes, what the host holds for it, its end."""

import ctypes
import gc
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from forging import SAY

from evalcell_sandboxes import (
    Confinement,
    Crashed,
    Exceeded,
    Invalid,
    Isolation,
    Limits,
    Outcome,
    Program,
    Raised,
    Returned,
    Session,
    sandbox,
)
from evalcell_sandboxes.wasm import memory, snapshot
from evalcell_sandboxes.wasm.guests import Guest
from evalcell_sandboxes.wasm.memory import LinearMemory
from evalcell_sandboxes.wasm.snapshot import Snapshot

EVALUATORS = Path(__file__).parents[2] / "benchmarks" / "evaluators"
TEXT = {"output": "the quick brown fox " * 10, "reference": "the slow brown dog " * 10}
DOCUMENT = json.dumps({"name": "x", "items": [{"sku": n, "price": n / 3} for n in range(12)]})

MUTATING = """
import gc, os, random, re, sys, time
seen, kept = [], []
class Late:
    def __init__(self): self.self = self
    def __del__(self): seen.append(self)
def evaluate(output, reference):
    seen.append(output); Late(); sys.modules[output[:9]] = sys
    kept.append([{n: str(n)} for n in range(len(seen) * 300)])
    re.compile(output[:20]); random.random(); os.urandom(8); time.sleep(0.001); print(output); os.write(1, b'raw')
    if len(output) % 3 == 0: gc.collect()
    try: evaluate.__wrapped__
    except AttributeError as error: kept.append(error)
    return [len(seen), sum(type(thing) is Late for thing in seen)]
"""
# Every n-th row does what cannot be undone, and the rest allocate from nothing to megabytes, in patterns.
GREEDY = """
import os
kept, number = [], 0
def evaluate(output, reference):
    size = len(output) * 7919 % 4_000_000
    memory = bytearray(size)
    for at in range(0, size, 8192): memory[at] = 1
    kept.append(memory)
    if len(output) % 40 == 0: kept.append(bytearray(30_000_000))
    if len(output) % 40 == 1: os.close(0)
    if len(output) % 40 == 2: raise ValueError(output)
    if len(output) % 40 == 3: os._exit(1)
    return size
"""
KINDS = {
    **{path.stem: text for path in sorted(EVALUATORS.glob("*.py")) if "dependencies" not in (text := path.read_text())},
    "mutating": MUTATING,
    "greedy": GREEDY,
    "raising": "def evaluate(output, reference): raise ValueError([output] * 20)\n",
    "every-other-page": "kept = bytearray(12 * 2**20)\ndef evaluate(output, reference):\n    for at in range(0, len(kept), 8192): kept[at] += 1\n    return kept[0]\n",
}


def row_of(kind: str, number: int) -> bytes:
    row: dict[str, Any] = {"output": DOCUMENT, "reference": DOCUMENT} if kind == "json_distance" else dict(TEXT)
    if kind in ("mutating", "greedy"):
        row["output"] = "x" * (number * 31 % 211 + 1)
    return json.dumps(row).encode()


class Watched(Guest):
    """A guest that keeps a copy of what was remembered, and can say in how many bytes its memory differs from it."""

    latest: "Watched"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.renewals = 0
        self.copy = b""
        Watched.latest = self

    def renew(self) -> None:
        self.renewals += 1
        super().renew()

    def remember(self) -> None:
        self._memory.look()
        where = self._memory.where
        self.copy = ctypes.string_at(where.start, where.size) if where else b""
        super().remember()

    @property
    def as_remembered(self) -> bool:
        """Reads all of the memory without a trace: a page of zeros that is read counts as a copy from then on."""
        self._memory.look()
        where, taken = self._memory.where, self._snapshot
        assert where is not None
        assert taken is not None
        before = set(snapshot._pages(taken._pagemap.written(where)))
        same = where.size == len(self.copy) and not _memcmp(where.start, self.copy, where.size)
        snapshot._throw_away(set(snapshot._pages(taken._pagemap.written(where))) - before)
        return same


_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)


@contextmanager
def opened(source: str, isolation: Isolation = Isolation.ROW, **limits: Any) -> Iterator[tuple[Session, Watched]]:
    confinement = Confinement(limits=Limits(**{"wall_seconds": 5.0, **limits}), isolation=isolation, seed=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("evalcell_sandboxes.wasm.guests.Guest", Watched)
        with sandbox("wasm").open(Program(source=source, filename="evaluator.py"), confinement) as session:
            assert isinstance(session.loaded, Returned), session.loaded
            yield session, Watched.latest


def run_one(session: Session, output: Any) -> Outcome:
    return next(session.run([json.dumps({"output": output}).encode()]))


# -- every byte --------------------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.usefixtures("restoring")
@pytest.mark.parametrize("kind", KINDS)
def test_after_every_row_the_whole_memory_is_as_it_was(plenty, repeats, kind):
    """Row by row at first and then every fiftieth, of many; all of them where time is no matter."""
    all_of_them = len(repeats(0, 1))
    many = {"greedy": 400, "every-other-page": 150, "sequence_ratio": 400}.get(kind, 1_500)

    def compared() -> int:
        count = 0
        with opened(KINDS[kind]) as (session, guest):
            for number in range(many * (1 + 4 * all_of_them)):
                outcome = next(session.run([row_of(kind, number)]))
                assert isinstance(outcome, Crashed | Raised | Returned), outcome
                if guest.alive and (all_of_them or number < 40 or number % 50 == 0):
                    count += 1
                    assert guest.as_remembered, f"after row {number}"
            assert (guest.renewals > 2) == (kind == "greedy")
        return count

    assert plenty(compared) > 30


@pytest.mark.usefixtures("restoring")
@pytest.mark.parametrize("kind", ["exact_match", "mutating"])
def test_the_comparison_finds_out_where_memory_is_not_put_back(monkeypatch, kind):
    monkeypatch.setattr(Snapshot, "put_back", lambda self, *, faulted: None)
    with opened(KINDS[kind]) as (session, guest):
        assert guest.as_remembered
        list(session.run([row_of(kind, 1)]))
        assert not guest.as_remembered


@pytest.mark.usefixtures("restoring")
def test_memory_is_put_back_across_the_looks_that_check_the_count_of_faults(monkeypatch):
    monkeypatch.setattr(snapshot, "_ROWS_A_LOOK", 7)
    with opened(MUTATING) as (session, guest):
        for number in range(100):
            list(session.run([row_of("mutating", number)]))
            assert guest.as_remembered
        assert guest.renewals == 2


@pytest.mark.usefixtures("restoring")
def test_what_the_host_reads_is_not_taken_for_written(monkeypatch):
    """Code may have the host read all of the memory in which rows are answered, on rows without any page fault."""
    monkeypatch.setattr(snapshot, "_ROWS_A_LOOK", 8)
    source = SAY + (
        "answers.box[16:2000] = bytes(1984)\n"  # in which there are answers from when the image was built
        "def evaluate(output):\n    lead(words=[0] * 4 if output else answers.words)\n"
        "    if output: answers.words[answers.USED] = answers.SIZE\n    return output\n"
    )
    with opened(source) as (session, guest):
        for number in range(64):
            reads_all = number % 8 > 4
            assert run_one(session, int(reads_all)).value == str(int(reads_all)).encode()
            assert guest.as_remembered
        assert guest.renewals == 2


# -- what the host holds -----------------------------------------------------------------------------------------------


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def held(guest: Watched) -> dict[str, int]:
    gc.collect()
    return {
        "handles": len(guest._world._handles),
        "descriptors": open_descriptors(),
        "threads": threading.active_count(),
        "mappings": Path("/proc/self/maps").read_text().count("\n"),
        "objects": len(gc.get_objects()),
        "resident": int(Path("/proc/self/statm").read_text().split()[1]) * snapshot.PAGE,
    }


def assert_held_no_more(before: dict[str, int], after: dict[str, int]) -> None:
    assert after["handles"] == before["handles"]
    assert after["descriptors"] == before["descriptors"]
    assert after["threads"] == before["threads"]
    assert abs(after["mappings"] - before["mappings"]) <= 8
    assert abs(after["objects"] - before["objects"]) <= 200
    assert after["resident"] - before["resident"] < 24 * 1024**2


@pytest.mark.soak
@pytest.mark.usefixtures("restoring")
@pytest.mark.parametrize("kind", ["exact_match", "mutating"])
def test_the_host_holds_no_more_after_thousands_of_rows(plenty, repeats, kind):
    many = len(repeats(3_000, 50_000))

    def rows(session: Session, count: int) -> None:
        for number in range(count):
            next(session.run([row_of(kind, number)]))

    def measured() -> tuple[dict[str, int], dict[str, int]]:
        with opened(KINDS[kind]) as (session, guest):
            rows(session, 300)
            before = held(guest)
            rows(session, many)
            assert guest.renewals == 2
            return before, held(guest)

    assert_held_no_more(*plenty(measured))


ENDINGS = {
    "grown memory": "kept.append(bytearray(40_000_000))",
    "crash": "os._exit(3)",
    "deadline": "while True: pass",
    "sleep": "time.sleep(60)",
    "closed descriptor": "os.close(1)",
    "no answer": "of_run()['words'] = [0] * 4",
    "two answers": "answers.box[16:18] = b'{\\n'; of_run()['at'] += 2",
}
ENDING = """
import answers, os, sys, time
kept = []
def of_run():
    frame = sys._getframe()
    while frame.f_code.co_name != 'run': frame = frame.f_back
    return frame.f_locals
def evaluate(output):
    kept.append(output)
"""
ENDING += "".join(f"    if output == {name!r}:\n        {code}\n" for name, code in ENDINGS.items())
ENDING += "    return len(kept)\n"


@pytest.mark.soak
@pytest.mark.usefixtures("restoring")
def test_the_host_holds_no_more_after_many_instances(plenty, repeats):
    def rows(session: Session, count: int) -> None:
        for number in range(count):
            run_one(session, [*ENDINGS, 1][number % (len(ENDINGS) + 1)])

    def measured() -> tuple[dict[str, int], dict[str, int]]:
        with opened(ENDING, wall_seconds=0.05) as (session, guest):
            rows(session, 3 * (len(ENDINGS) + 1))
            assert guest.alive
            before = held(guest)
            rows(session, len(repeats(8, 500)) * (len(ENDINGS) + 1))
            return before, held(guest)

    assert_held_no_more(*plenty(measured))


# -- the end of an instance --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("restoring")
@pytest.mark.parametrize("ending", ENDINGS)
def test_what_cannot_be_undone_ends_the_instance_and_the_next_row_is_right(plenty, ending):
    def check() -> None:
        with opened(ENDING, wall_seconds=0.3) as (session, guest):
            for _ in range(3):
                before = guest.renewals
                run_one(session, ending)
                assert not guest.alive
                assert run_one(session, 1).value == b"1"
                assert guest.renewals == before + 1
                assert guest.as_remembered

    plenty(check)


@pytest.mark.usefixtures("restoring")
@pytest.mark.parametrize(
    ("handles", "ends"),
    [
        ("time.sleep(0.001)", False),
        ("time.sleep(0.001); time.sleep(0.002); os.write(1, b'x'); os.urandom(3)", False),
        ("asyncio.run(asyncio.sleep(0.01))", False),
        ("os.read(0, 10); input_ended()", False),
        ("refused(open, '/etc/passwd'); refused(os.listdir, '/'); refused(os.stat, '/x')", False),
        ("refused(socket.getaddrinfo, 'example.org', 80)", False),
        ("refused(os.close, 77)", False),
        ("os.close(2)", True),
    ],
)
def test_only_handles_that_are_kept_or_given_back_in_another_order_end_the_instance(handles, ends):
    source = (
        "import asyncio, os, socket, sys, time\n"
        "def input_ended(): assert sys.stdin.read() == ''\n"
        "def refused(function, *arguments):\n    try: function(*arguments)\n    except OSError: pass\n"
        f"def evaluate(output):\n    {handles}\n    return time.time()\n"
    )
    with opened(source) as (session, guest):
        first = run_one(session, 1)
        assert isinstance(first, Returned), first
        assert guest.alive is not ends
        assert run_one(session, 1).value == first.value


@pytest.mark.usefixtures("restoring")
def test_two_handles_at_a_time_end_the_instance():
    """Given back in another order than they came, they would leave wasmtime's list of free ones in another order."""
    with opened("def evaluate(output): return 1\n") as (session, guest):
        for number in (10**6, 10**6 + 1):
            guest._world._handles[number] = 0
            guest._world._most_handles = max(guest._world._most_handles, len(guest._world._handles))
        guest._world.drop(None, 10**6)
        guest._world.drop(None, 10**6 + 1)
        run_one(session, 1)
        assert not guest.alive


@pytest.mark.usefixtures("restoring")
@pytest.mark.parametrize("size", [0, 1_000, 100_000, 1_000_000, 8_000_000])
def test_ordinary_rows_do_not_end_the_instance(size):
    source = f"import gc, json, re\ndef evaluate(output):\n    bytearray({size}); gc.collect()\n    return json.dumps(re.findall('.', output))\n"
    with opened(source) as (session, guest):
        for number in range(300 if size < 10**6 else 60):
            run_one(session, "text" * (number % 50))
        assert guest.renewals == 2  # to compile the code, and from the code


@pytest.mark.usefixtures("restoring")
def test_without_room_for_a_copy_every_row_gets_an_instance_of_its_own(monkeypatch):
    """No more descriptors or mappings, say."""

    def fail(written: object) -> None:
        raise OSError("no more mappings")

    monkeypatch.setattr(snapshot, "_map_copy_over", fail)
    with opened("seen = []\ndef evaluate(output):\n    seen.append(1)\n    return len(seen)\n") as (session, guest):
        before = open_descriptors()
        assert [run_one(session, 1).value for _ in range(5)] == [b"1"] * 5
        assert guest.renewals > 5
        assert open_descriptors() == before


@pytest.mark.usefixtures("restoring")
def test_memory_that_cannot_be_put_back_ends_the_instance(monkeypatch):
    def fail(pages: object) -> None:
        raise OSError("no advice taken")

    with opened("seen = []\ndef evaluate(output):\n    seen.append(1)\n    return len(seen)\n") as (session, _):
        monkeypatch.setattr(snapshot, "_throw_away", fail)
        assert [run_one(session, 1).value for _ in range(3)] == [b"1"] * 3


# -- where memory cannot be put back -----------------------------------------------------------------------------------


@pytest.fixture(params=["no-snapshots", "no-memory"])
def without(request, monkeypatch) -> str:
    """A machine that cannot put memory back, or one that cannot even find it, as macOS."""
    if request.param == "no-snapshots":
        monkeypatch.setattr(snapshot, "works_here", lambda: False)
    else:
        monkeypatch.setattr(LinearMemory, "find", lambda self, pointer, mark: None)
    return request.param


def test_where_the_kernel_does_not_let_us_look_no_memory_is_taken_for_whole(monkeypatch):
    """A filter of system calls may refuse what tells whether the memory has grown."""
    monkeypatch.setattr(memory._Reader, "read", lambda self, address, size: b"")
    with opened("kept = []\ndef evaluate(output):\n    kept.append(bytes(50 * 2**20))\n    return len(kept)\n") as (
        session,
        guest,
    ):
        assert [json.loads(run_one(session, row).value) for row in range(4)] == [1] * 4
        assert guest._snapshot is None


def test_without_a_list_of_mappings_every_row_gets_an_instance_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_MAPS", tmp_path / "missing")
    with opened("seen = []\ndef evaluate(output):\n    seen.append(1)\n    return len(seen)\n") as (session, guest):
        assert [json.loads(run_one(session, row).value) for row in range(3)] == [1] * 3
        assert guest._snapshot is None


def outcomes(source: str, *outputs: Any, isolation: str = "row", **limits: Any) -> list[Outcome]:
    with opened(source, Isolation(isolation), **limits) as (session, _):
        return list(session.run([json.dumps({"output": output}).encode() for output in outputs]))


def values(found: list[Outcome]) -> list[Any]:
    assert all(isinstance(outcome, Returned) for outcome in found), found
    return [json.loads(outcome.value) for outcome in found]


COUNTS = "seen = []\ndef evaluate(output):\n    seen.append(output)\n    return list(seen)\n"


def test_without_it_every_row_still_starts_fresh(without):
    with opened(COUNTS) as (session, guest):
        assert [json.loads(run_one(session, n).value) for n in range(6)] == [[n] for n in range(6)]
        assert guest._snapshot is None
        assert guest.renewals == 2 + 5


def test_without_it_rows_may_still_share_state(without):
    assert values(outcomes(COUNTS, *range(5), isolation="evaluator")) == [list(range(n + 1)) for n in range(5)]


@pytest.mark.parametrize("isolation", list(Isolation))
def test_without_it_many_rows_come_back_in_order_with_their_prints(without, isolation):
    source = "import os\ndef evaluate(output):\n    print('said', output); os.write(2, b'raw %d' % output)\n    return output\n"
    found = outcomes(source, *range(40), isolation=isolation)
    assert values(found) == list(range(40))
    assert [(outcome.stdout, outcome.stderr) for outcome in found] == [(f"said {n}\n", f"raw {n}") for n in range(40)]


@pytest.mark.parametrize("isolation", list(Isolation))
def test_without_it_deadlines_hold(without, isolation):
    source = "import time\ndef evaluate(output):\n    while output == 'loop': pass\n    time.sleep(60 if output == 'sleep' else 0.01)\n    return output\n"
    started = time.monotonic()
    before, looped, between, slept, after = outcomes(
        source, 1, "loop", 2, "sleep", 3, isolation=isolation, wall_seconds=0.3
    )
    assert time.monotonic() - started < 3
    assert values([before, between, after]) == [1, 2, 3]
    assert [ended.limit for ended in (looped, slept) if isinstance(ended, Exceeded)] == ["wall_seconds"] * 2


def test_without_it_the_same_row_sees_the_same_world(without):
    source = "import os, random, time\ndef evaluate(output): return [random.random(), os.urandom(4).hex(), time.time(), id([])]\n"
    first, other, again = values(outcomes(source, 1, 2, 1))
    assert first == again
    assert first[:2] != other[:2]


@pytest.mark.parametrize(
    ("forging", "kinds"),
    [
        ("calling._report = lambda *_: 'nonsense'", (Invalid,)),
        ("calling._report = lambda *_: ''", (Invalid,)),
        ("answers.words[answers.DONE] = answers.words[answers.USED] = 2**32 - 1", (Returned, Invalid)),
        ("calling.run = None", (Crashed, Returned)),
        ("calling._loaded.room = 10**9", (Returned, Crashed)),
        ("answers.box[16:20] = b'\\xff\\n\\n\\n'", (Returned,)),
        ("os._exit(0)", (Crashed,)),
    ],
)
def test_without_it_forged_answers_are_their_own_rows_alone(without, forging, kinds):
    source = f"import answers, calling, os\ndef evaluate(output):\n    if output: {forging}\n    return output\n"
    with opened(source) as (session, _):
        forged, honest = (run_one(session, output) for output in (1, 0))
    # What is patched shows in the row after it where rows share state; here there is none.
    assert isinstance(forged, (*kinds, Returned))
    assert values([honest]) == [0]


def test_without_it_an_answer_that_fills_the_box_arrives(without):
    sizes = [10, 300_000, 700_000, 5]
    for isolation in Isolation:
        found = outcomes("def evaluate(output): return 'x' * output\n", *sizes, isolation=isolation)
        assert [len(text) for text in values(found)] == sizes
