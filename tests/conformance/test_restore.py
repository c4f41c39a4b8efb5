"""A row finds what a new instance gives, whatever rows before it have done: random mutations, and a probe for them."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evalcell_sandboxes import Confinement, Isolation, Limits, Outcome, Program, Returned, Session, sandbox
from evalcell_sandboxes.wasm import guests
from evalcell_sandboxes.wasm.snapshot import Snapshot

pytestmark = pytest.mark.usefixtures("restoring")

Row = list[tuple[str, int]]
"""What a row does before it probes: mutations by name, each with a number."""

MODULE = '''
import abc, answers, ast, asyncio, atexit, builtins, calling, codecs, collections, contextvars, copyreg, datetime, decimal
import fnmatch, functools, gc, io, json, linecache, locale, logging, math, os, random, re, socket, string, struct, sys
import threading, time, types, uuid, warnings, weakref, zlib

STATE, KEPT, COUNTER, VARIABLE = [], [], 0, contextvars.ContextVar("variable", default=None)

PAGES = bytearray(5 * 2**20)

class Thing:
    number = 0

class Cycle:
    """Says so when it is collected, in more than one place."""
    def __init__(self): self.self = self
    def __del__(self): STATE.append("collected"); Thing.number += 1; builtins.collected = True

@functools.lru_cache(maxsize=None)
def cached(n): return [n]

def default(n, kept=[]): kept.append(n); return kept

def opened(n):
    try:
        for step in range(n + 2): yield step
    finally: STATE.append("closed")

def deep(n): return deep(n + 1)

PATCHED = [(json, "dumps"), (json, "loads"), (random, "random"), (random.Random, "random"), (re, "sub"), (math, "floor"),
           (time, "time"), (os, "getpid"), (calling, "_quote"), (string, "digits"), (decimal, "Decimal")]
ORIGINALS = [getattr(owner, name) for owner, name in PATCHED]
BUILTINS = dict(vars(builtins))

def attempt(function, *arguments):
    try: return function(*arguments)
    except BaseException as error: return type(error).__name__

PROBES = {
    "state": lambda: [len(STATE), STATE[:5], COUNTER, Thing.number, default.__defaults__[0][:5]],
    "kept": lambda: len(KEPT),
    "cached": lambda: [cached.cache_info()[:2], fnmatch._compile_pattern.cache_info().currsize],
    "patterns": lambda: [len(re._cache), len(re._cache2)],
    "builtins": lambda: sorted(k for k in {*BUILTINS, *vars(builtins)} if vars(builtins).get(k, STATE) is not BUILTINS.get(k, KEPT)),
    "patched": lambda: [name for (owner, name), was in zip(PATCHED, ORIGINALS) if getattr(owner, name) is not was],
    "modules": lambda: zlib.crc32(" ".join(sorted(sys.modules)).encode()),
    "recursion": lambda: [sys.getrecursionlimit(), sys.get_int_max_str_digits(), sys.getswitchinterval()],
    "gc": lambda: [gc.isenabled(), gc.get_threshold(), gc.get_debug(), len(gc.callbacks), gc.get_freeze_count()],
    "collections": lambda: gc.get_stats(),
    "counts": lambda: [gc.get_count(), len(gc.get_objects()), len(gc.garbage)],
    "references": lambda: [sys.getrefcount(thing) for thing in (STATE, sys.modules, json.dumps, evaluate, Thing, calling)],
    "atexit": lambda: [atexit._ncallbacks(), len(weakref.finalize._registry), weakref.getweakrefcount(Thing)],
    "context": lambda: [VARIABLE.get(), decimal.getcontext().prec, sorted(map(str, decimal.getcontext().flags.items()))],
    "locale": lambda: locale.setlocale(locale.LC_ALL),
    "warnings": lambda: [len(warnings.filters), len(warnings.onceregistry)],
    "hooks": lambda: [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, len(sys.meta_path),
                      len(sys.path), sys.gettrace() is None, sys.getprofile() is None, sys.unraisablehook is sys.__unraisablehook__],
    "registered": lambda: [len(copyreg.dispatch_table), abc.get_cache_token(), type(attempt(codecs.lookup_error, "bent")).__name__,
                           len(logging.root.manager.loggerDict), len(logging.root.handlers), len(linecache.cache)],
    "environment": lambda: dict(os.environ),
    "descriptors": lambda: [attempt(os.write, fd, b"") for fd in range(6)] + [attempt(os.read, 0, 1) == b""],
    "streams": lambda: [sys.stdout is sys.__stdout__, sys.stdout.closed, sys.stdin.read(), attempt(input)],
    "threads": lambda: [threading.active_count(), attempt(asyncio.get_running_loop)],
    "places": lambda: [id(object()), id([]), id({}), id(bytearray(10**5)), id(b"x" * 10**6), hash(object()), hash("text")],
    "order": lambda: [thing[1] for thing in {(object(), n) for n in range(20)}],
    "drawn": lambda: [random.random(), random.gauss(0, 1), random.getrandbits(70), os.urandom(4).hex(), str(uuid.uuid4())],
    "clock": lambda: [time.time(), time.monotonic(), time.perf_counter(), time.process_time(), str(datetime.datetime.now())],
    "pages": lambda: zlib.crc32(PAGES),
    "box": lambda: zlib.crc32(answers.box),
}

def probe():
    return {name: attempt(look) for name, look in PROBES.items()}

def mutate(mutations):
    for name, n in mutations:
        try: MUTATIONS[name](n)
        except OSError as error: print(name, "was refused:", error)

def evaluate(output):
    mutate(output)
    print("probing")
    return probe()

MUTATIONS = {}
def mutation(function): MUTATIONS[function.__name__] = function
'''

# Each with the probe in which it shows where rows share state. With none where nothing remains of it there either: its
# draws, its prints, memory that it gave back; or where it ends the instance.
MUTATIONS = {
    "append_to_global": ("STATE.append(n)", "state"),
    "rebind_global": ("global COUNTER; COUNTER += n + 1", "state"),
    "default_argument": ("default(n)", "state"),
    "class_attribute": ("Thing.number = n + 1", "state"),
    "new_builtin": ("builtins.row = n", "builtins"),
    "patched_builtin": ("builtins.sorted = lambda *a, **k: [n]", "builtins"),
    "patched_len": ("builtins.len = lambda thing: n", None),
    "deleted_builtin": ("del builtins.zip", "builtins"),
    "patched_json": ("json.dumps = json.loads = lambda *a, **k: str(n)", "patched"),
    "patched_random": ("random.Random.random = lambda self: n / 10", "patched"),
    "patched_regex": ("re.sub = lambda *a: str(n)", "patched"),
    "patched_clock": ("time.time = lambda: float(n)", "patched"),
    "patched_guest": ("calling._quote = lambda text: str(n)", "patched"),
    "cache": ("cached(n); cached(n)", "cached"),
    "library_cache": ("fnmatch.fnmatch('x', f'{n}*')", "cached"),
    "regex_cache": ("[re.match(f'{n}x{m}', '') for m in range(n + 1)]", "patterns"),
    "purged_regex_cache": ("re.match('y', ''); re.purge(); re.match('z', '')", "patterns"),
    "new_module": ("sys.modules[f'row{n}'] = types.ModuleType('row')", "modules"),
    "deleted_module": ("sys.modules.pop('string', None)", "modules"),
    "recursion_limit": ("sys.setrecursionlimit(200 + n)", "recursion"),
    "digits": ("sys.set_int_max_str_digits(1000 + n)", "recursion"),
    "no_collector": ("gc.disable()", "gc"),
    "collector_threshold": ("gc.set_threshold(n + 1, 2, 3)", "gc"),
    "collector_callback": ("gc.callbacks.append(lambda *a: STATE.append(n)); gc.collect()", "gc"),
    "freeze": ("KEPT.append([]); gc.freeze()", "gc"),
    "unfreeze": ("gc.unfreeze()", "gc"),
    "collect": ("gc.collect()", "collections"),
    "finalizer_in_cycle": ("Cycle()", "counts"),
    "finalizer_run": ("Cycle(); gc.collect()", "state"),
    "finalizer_that_revives": ("class Back:\n    def __del__(self): KEPT.append(self)\nBack()", "kept"),
    "generator_left_open": ("made = opened(n); next(made); KEPT.append(made)", "kept"),
    "generator_closed_late": ("made = opened(n); next(made)", "state"),
    "exception_kept": ("try: 1 / 0\nexcept ZeroDivisionError as error: KEPT.append(error)", "kept"),
    "exit_handler": ("atexit.register(STATE.append, n)", "atexit"),
    "weak_finalizer": ("thing = Thing(); KEPT.append(thing); weakref.finalize(thing, STATE.append, n)", "atexit"),
    "context_variable": ("VARIABLE.set(n)", "context"),
    "decimal_context": ("decimal.getcontext().prec = 3 + n; decimal.Decimal(1) / 7", "context"),
    "other_locale": ("locale.setlocale(locale.LC_ALL, 'C')", "locale"),
    "warning_filter": ("warnings.simplefilter('error', append=bool(n % 2))", "warnings"),
    "hooks": ("sys.excepthook = sys.displayhook = sys.unraisablehook = lambda *a: None", "hooks"),
    "import_hooks": ("sys.meta_path.insert(0, None); sys.path.append(str(n))", "hooks"),
    "trace": ("sys.settrace(lambda *a: None)", "hooks"),
    "profile": ("sys.setprofile(lambda *a: None)", "hooks"),
    "codec_error": ("codecs.register_error('bent', lambda error: ('', 0))", "registered"),
    "codec_search": ("codecs.register(lambda name: None); ''.encode('utf-8')", None),
    "virtual_subclass": ("collections.abc.Sized.register(type('S', (), {}))", "registered"),
    "pickling": ("copyreg.pickle(Thing, repr)", "registered"),
    "logger": ("logging.getLogger(f'row{n}').warning('said'); logging.basicConfig()", "registered"),
    "environment": ("os.environ['ROW'] = str(n); os.putenv('OTHER', 'x')", "environment"),
    "seed": ("random.seed(n)", None),
    "draws": ("[random.random() for _ in range(n * 300)]; os.urandom(n)", None),
    "random_state": ("random.setstate(random.Random(n).getstate()); random.gauss(0, 1)", None),
    "generator_class": ("random._inst.__class__ = random.SystemRandom", None),
    "small_things": ("[object() for _ in range(1000 * n)]", None),
    "objects_that_move": ("KEPT.extend({object(): n} for _ in range(100))", "places"),
    "megabytes": ("bytearray(n * 2**20)", None),
    "megabytes_kept": ("KEPT.append(bytearray(n * 2**21))", "kept"),
    "tens_of_megabytes": ("bytearray(10_000_000 * n)", None),
    "every_other_page": ("for at in range(0, len(PAGES), 2**13): PAGES[at] += n + 1", "pages"),
    "many_objects_kept": ("KEPT.append([str(m) for m in range(20_000 * n)])", "kept"),
    "memory_error": ("try: bytearray(2**31 - 100)\nexcept MemoryError as error: KEPT.append(error)", "kept"),
    "recursion": ("try: deep(0)\nexcept RecursionError as error: KEPT.append(error)", "kept"),
    "raises": ("STATE.append(n); raise ValueError(n)", "state"),
    "raises_group": ("STATE.append(n); raise ExceptionGroup('many', [ValueError(n), KeyError(Cycle())])", "state"),
    "exits": ("STATE.append(n); sys.exit(n)", "state"),
    "sleeps": ("time.sleep(n / 100 + 0.001)", "clock"),
    "runs_a_loop": ("asyncio.run(asyncio.sleep(0.01))", "clock"),
    "loop_left_open": ("loop = asyncio.new_event_loop(); loop.create_future(); KEPT.append(loop)", "kept"),
    "coroutine_left_open": ("KEPT.append(asyncio.sleep(1))", "kept"),
    "raw_prints": ("os.write(1, b'raw'); os.write(2, b'err')", None),
    "opens_a_file": ("open(f'row{n}.txt', 'w')", None),
    "looks_around": ("os.listdir('/')", None),
    "opens_a_socket": ("KEPT.append(socket.socket())", None),
    "looks_a_name_up": ("socket.getaddrinfo('example.org', 80)", None),
    "starts_a_thread": ("try: threading.Thread(target=STATE.append, args=(n,)).start()\nexcept RuntimeError: pass", None),
    "closes_stdin": ("os.close(0)", "descriptors"),
    "closes_stdout": ("os.close(1)", "descriptors"),
    "duplicates": ("os.dup2(1, 2)", None),
    "replaces_streams": ("sys.stdout = sys.stderr = io.StringIO(); sys.stdin.close()", None),
    "writes_to_the_box": ("answers.box[5000 + n] ^= 255", "box"),
    "resizes_the_box": ("answers.words.release(); answers.contents.release(); answers.box.extend(bytes(100))", None),
    "stops": ("answers.words[answers.STOP] = 1", None),
    "warms_up": ("for m in range(500 * n): cached.__wrapped__(m), str(m), math.sqrt(m)", None),
    "compiles": ("KEPT.append(compile('x = 1\\n' * (100 * n + 1), 'row.py', 'exec')); ast.parse('a + b')", "kept"),
    "new_types": ("KEPT.extend(type(f'T{m}', (), {}) for m in range(50 * n + 1))", "kept"),
    "interns": ("KEPT.append([sys.intern(f'row{m}') for m in range(100 * n + 1)])", "kept"),
    "rewrites_the_probe": ("evaluate.__code__ = (lambda output: {'bent': 1}).__code__", "bent"),
    "clears_the_module": ("globals().clear()", "bent"),
    "replaces_evaluate": ("calling._loaded.call = lambda arguments: {'bent': n}", "bent"),
    "never_ends": ("while n > 2: pass", None),
    "ends_the_interpreter": ("if n > 2: os._exit(n)", None),
}  # fmt: skip


def module(at_load: Sequence[tuple[str, int]] = ()) -> str:
    """The evaluator: every mutation as a function, and those that the module itself is to do when it is loaded."""
    functions = "".join(
        f"@mutation\ndef {name}(n):\n    " + code.replace("\n", "\n    ") + "\n"
        for name, (code, _) in MUTATIONS.items()
    )
    return f"{MODULE}{functions}mutate({list(at_load)!r})\n"


@contextmanager
def opened(source: str, isolation: Isolation = Isolation.ROW, seconds: float = 0.5) -> Iterator[Session]:
    limits = Limits(wall_seconds=seconds, memory_bytes=256 * 1024**2)
    confinement = Confinement(limits=limits, isolation=isolation, seed=11, clock_start_ns=1_700_000_000 * 10**9)
    with sandbox("wasm").open(Program(source=source, filename="evaluator.py"), confinement) as session:
        yield session


def run(session: Session, *rows: Row) -> list[Any]:
    """What became of rows, without the time that they took."""
    return [what_counts(outcome) for outcome in session.run([json.dumps({"output": row}).encode() for row in rows])]


def what_counts(outcome: Outcome) -> Any:
    said = {name: getattr(outcome, name) for name in outcome.__struct_fields__ if name != "usage"}
    return type(outcome).__name__, said, outcome.usage.memory_bytes


def seen(outcome: Any) -> dict[str, Any]:
    """What a probe saw; everything bent where it could not even say."""
    kind, said, _ = outcome
    found = json.loads(said["value"]) if kind == "Returned" else None
    return found if isinstance(found, dict) else {"bent": said}


MUTATED_ROWS = st.lists(st.tuples(st.sampled_from(sorted(MUTATIONS)), st.integers(0, 3)), max_size=4)


@pytest.fixture(scope="module")
def fresh(plenty) -> Callable[[Row], Any]:
    """What a row gives as the first one of a new session; each is only asked once."""
    known: dict[str, Any] = {}

    def fresh(row: Row) -> Any:
        if str(row) not in known:
            with opened(module()) as session:
                (known[str(row)],) = run(session, row)
        return known[str(row)]

    return fresh


@pytest.mark.soak
def test_a_row_after_any_others_is_what_a_new_instance_gives(plenty, fresh, repeats):
    """All in one session, so that what any row left behind meets all that come after it."""

    def property_holds() -> None:
        with opened(module()) as session:
            assert isinstance(session.loaded, Returned), session.loaded

            @settings(max_examples=len(repeats(120, 2_000)), deadline=None, suppress_health_check=list(HealthCheck))
            @given(st.lists(MUTATED_ROWS, min_size=1, max_size=4))
            def after_any(rows: list[Row]) -> None:
                *_, probed = run(session, *rows, [])
                assert probed == fresh([])

            after_any()

    plenty(property_holds)


@pytest.mark.soak
def test_rows_are_the_same_in_whatever_order(plenty, fresh, repeats):
    def property_holds() -> None:
        @settings(max_examples=len(repeats(15, 500)), deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(MUTATED_ROWS, min_size=2, max_size=5), st.randoms(use_true_random=False))
        def in_any_order(rows: list[Row], chance: Any) -> None:
            order = chance.sample(range(len(rows)), len(rows))
            with opened(module()) as session:
                first = run(session, *rows)
                again = run(session, *[rows[n] for n in order])
            assert again == [first[n] for n in order]
            assert first[-1] == fresh(rows[-1])

        in_any_order()

    plenty(property_holds)


def test_the_probe_finds_out_where_memory_is_not_put_back(plenty, fresh, monkeypatch):
    """Or else the tests above would prove nothing."""
    monkeypatch.setattr(Snapshot, "put_back", lambda self, *, faulted: None)

    def probed() -> list[Any]:
        with opened(module()) as session:
            return [run(session, row, [])[-1] for row in ([("append_to_global", 1)], [("cache", 1)], [])]

    assert fresh([]) not in plenty(probed)


def test_a_row_does_not_see_how_much_real_time_it_takes(plenty):
    """However slow the machine is: nothing that the host writes while a row runs may depend on it."""
    source = (
        "import answers\n"
        "def evaluate(output):\n    for _ in range(output): pass\n    return answers.words[answers.STOP]\n"
    )

    def stopped() -> list[Outcome]:
        with opened(source, seconds=30.0) as session:
            return list(session.run([b'{"output": 1}', b'{"output": 5000000}']))

    quick, slow = plenty(stopped)
    assert slow.usage.wall_seconds > guests._CALL_SECONDS, "too quick to show anything"
    assert quick.value == slow.value == b"0"


LASTING = sorted(name for name, (_, shows) in MUTATIONS.items() if shows and shows != "bent")


@pytest.mark.soak
def test_rows_start_from_what_the_module_did_when_it_was_loaded(plenty, repeats):
    """Also where that is the mutation: then it is what a new instance gives, and stays so."""
    left_out = {"raises", "raises_group", "exits", "patched_guest", "patched_len", "deleted_builtin", "closes_stdout"}
    at_load = st.lists(
        st.tuples(st.sampled_from([name for name in LASTING if name not in left_out]), st.integers(0, 3)), max_size=3
    )

    def property_holds() -> None:
        @settings(max_examples=len(repeats(12, 500)), deadline=None, suppress_health_check=list(HealthCheck))
        @given(at_load, st.lists(MUTATED_ROWS, min_size=1, max_size=3))
        def from_there(loading: Row, rows: list[Row]) -> None:
            with opened(module(loading)) as session, opened(module(loading)) as another:
                assert isinstance(session.loaded, Returned), session.loaded
                assert run(session, *rows, [])[-1] == run(another, [])[0]

        from_there()

    plenty(property_holds)


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_mutation_is_gone_with_its_row_and_stays_where_rows_share_state(plenty, fresh, name):
    """The control: where state is shared on purpose, the probe after it sees what the mutation did."""

    def probed(isolation: Isolation, *mutations: Any) -> Any:
        with opened(module(), isolation) as session:
            return [seen(run(session, row)[0]) for row in (list(mutations), [])][-1]

    plain = seen(plenty(lambda: fresh([])))
    assert plenty(lambda: probed(Isolation.ROW, (name, 1))) == plain
    if shows := MUTATIONS[name][1]:
        unchanged, changed = (
            plenty(lambda mutations=mutations: probed(Isolation.EVALUATOR, *mutations))
            for mutations in ([], [(name, 1)])
        )
        assert changed.get(shows) != unchanged.get(shows)
