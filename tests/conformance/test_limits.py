"""One suite for every real wall: greedy code costs its own row, and no more than its limits."""

import time

import pytest
from forms import Forms, each, evaluating, only_in_python
from sessions import opened, run, values

from evalcell_sandboxes import Confinement, Crashed, Exceeded, Isolation, Program, Raised, Returned

# -- time -------------------------------------------------------------------------------------------------------------
LOOP = evaluating(
    "\n    while output == 'loop': pass\n    return output", "while (output === 'loop');\n  return output;"
)


@pytest.mark.parametrize("isolation", list(Isolation))
def test_an_endless_loop_costs_its_row_alone_and_little_more_than_its_limit(real_wall, isolation):
    started = time.monotonic()
    before, looped, after = run(real_wall, LOOP, "a", "loop", "b", isolation=isolation, wall_seconds=0.5)
    assert time.monotonic() - started < 5
    assert values([before, after]) == ["a", "b"]
    assert isinstance(looped, Exceeded)
    assert looped.limit == "wall_seconds"
    assert 0.4 < looped.usage.wall_seconds < 3


@each(
    "body",
    python=[
        pytest.param("import re; re.match('(a+)+$', 'a' * 40 + 'b')", id="regex"),
        pytest.param("10 ** 10 ** 8", id="integer"),
        pytest.param(
            "\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
            id="swallowing",
        ),
        pytest.param("sum(1 for _ in iter(int, 1))", id="endless-iterator"),
        pytest.param("sorted([0] * 10**6, key=lambda _: [None for _ in range(10**4)])", id="native-loop"),
    ],
    typescript=[
        pytest.param("/^(a+)+$/.test('a'.repeat(40) + 'b');", id="regex"),
        pytest.param("(10n ** 1_000_000n) ** 100n;", id="integer"),
        pytest.param("while (true) try { while (true); } catch {} finally { continue; }", id="swallowing"),
        pytest.param("for (const _ of (function* () { while (true) yield 1; })());", id="endless-iterator"),
        pytest.param("Array.from({ length: 3e6 }, (_, n) => String(n * 7919 % 1e6)).sort();", id="native-loop"),
        pytest.param("const again = () => Promise.resolve().then(again);\n  return again();", id="microtasks"),
        pytest.param("return { then: (done) => { while (true); } };", id="thenable"),
        pytest.param("return { get score() { while (true); } };", id="getter"),
    ],
)
def test_no_loop_outlives_its_limit(wall, body):
    started = time.monotonic()
    (outcome,) = run(wall, evaluating(body, body), 1, wall_seconds=0.3)
    assert isinstance(outcome, Exceeded)
    assert outcome.limit == "wall_seconds"
    assert time.monotonic() - started < 5


def test_each_of_many_slow_rows_has_the_whole_limit_to_itself(real_wall):
    source = evaluating(
        "\n    for _ in range(output): pass\n    return 1",
        "let sum = 0;\n  for (let n = 0; n < 10 * output; n++) sum += n % 7;\n  return sum > 0 ? 1 : 0;",
    )
    outcomes = run(real_wall, source, *[3_000_000] * 8, isolation="evaluator", wall_seconds=1.0)
    assert values(outcomes) == [1] * 8
    assert all(0.001 < outcome.usage.wall_seconds < 1.0 for outcome in outcomes)


SLEEP = Forms(
    "from time import sleep\n",
    "const sleep = (seconds: number) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, seconds * 1000);\n",
)
SLEEPY = SLEEP + evaluating("\n    sleep(output)\n    return 1", "sleep(output);\n  return 1;")


def test_sleeping_past_the_limit_ends_at_once_where_time_is_virtual(virtual_wall):
    started = time.monotonic()
    slept, after = run(virtual_wall, SLEEPY, 3600, 0)
    assert time.monotonic() - started < 3
    assert isinstance(slept, Exceeded)
    assert slept.limit == "wall_seconds"
    assert isinstance(after, Returned)


def test_sleeping_past_the_limit_is_stopped(real_wall):
    started = time.monotonic()
    slept, after = run(real_wall, SLEEPY, 3600, 0, wall_seconds=1.0)
    assert time.monotonic() - started < 1.0 + 3.0
    assert isinstance(slept, Exceeded)
    assert slept.limit == "wall_seconds"
    assert isinstance(after, Returned)


CLOCKS = SLEEP + evaluating(
    "\n    import time\n    t = time.time(); m = time.monotonic(); sleep(2)\n"
    "    return [time.time() - t, time.monotonic() - m]",
    "const t = Date.now();\n  sleep(2);\n  return [(Date.now() - t) / 1000];",
)


def test_a_short_sleep_moves_the_clock_and_counts_as_time(real_wall):
    (outcome,) = run(real_wall, CLOCKS, 1)
    late = 0.01 if real_wall.name == "wasm" else 2.0  # elsewhere the clock is real, and the machine may be busy
    assert all(2 - 0.01 <= slept <= 2 + late for slept in values([outcome])[0])
    assert outcome.usage.wall_seconds >= 2


BUSY = SLEEP + Forms(
    "def busy():\n    for _ in range(20_000_000): pass\n",
    "function busy() {\n  for (const end = Date.now() + 300; Date.now() < end; );\n}\n",
)


@pytest.mark.parametrize(
    "body", ["busy(); sleep(0.95)", "sleep(0.95); busy(); busy()"], ids=["work-then-sleep", "sleep-then-work"]
)
def test_work_and_sleep_share_one_limit(real_wall, body):
    source = BUSY + evaluating(f"\n    {body}\n    return 1", f"{body};\n  return 1;")
    (outcome,) = run(real_wall, source, 1, wall_seconds=1.0)
    assert isinstance(outcome, Exceeded)
    assert outcome.limit == "wall_seconds"


def test_a_limit_holds_for_code_that_keeps_the_host_busy(real_wall):
    """Deadlines are kept by a thread of the host, which must not lose count while it is kept waiting."""
    source = evaluating(
        "\n    import os, time\n    while True: time.time(); os.urandom(8); os.write(1, b'x')",
        "while (true) { Date.now(); Math.random(); console.log('x'); }",
    )
    started = time.monotonic()
    (outcome,) = run(real_wall, source, 1, wall_seconds=3.0)
    assert isinstance(outcome, Exceeded)
    assert time.monotonic() - started < 3.0 + 2.0


def test_a_module_that_never_loads_is_stopped(real_wall):
    with opened(real_wall, Forms("while True: pass\n", "while (true);\n"), load_seconds=0.5) as session:
        assert isinstance(session.loaded, Exceeded)
        assert session.loaded.limit == "load_seconds"


# -- memory -----------------------------------------------------------------------------------------------------------
TAKE = evaluating("return len(bytearray(output))", "return new Uint8Array(output).fill(1).length;")


def test_a_memory_bomb_is_stopped_at_its_limit(real_wall):
    bomb, after = run(real_wall, TAKE, 10**9, 10, memory_bytes=128 * 1024**2)
    assert isinstance(bomb, Exceeded)
    assert bomb.limit == "memory_bytes"
    assert values([after]) == [10]


def test_a_slow_memory_leak_is_stopped_too(real_wall):
    source = evaluating(
        "\n    kept = []\n    while True: kept.append(bytearray(2**20))",
        "const kept = [];\n  while (true) kept.push(new Uint8Array(2 ** 20).fill(1));",
    )
    (outcome,) = run(real_wall, source, 1, memory_bytes=96 * 1024**2)
    assert isinstance(outcome, Exceeded)
    assert outcome.limit == "memory_bytes"


def test_memory_use_is_reported(real_wall):
    small, large = run(real_wall, TAKE, 10, 100_000_000)
    assert small.usage.memory_bytes is not None
    assert large.usage.memory_bytes - small.usage.memory_bytes > 50_000_000


# -- the stack --------------------------------------------------------------------------------------------------------
TOO_DEEP = Forms("RecursionError", "RangeError")


def test_deep_recursion_is_an_error_of_its_row(real_wall):
    source = evaluating(
        "return evaluate(output) if output == 1 else 0", "return output === 1 ? evaluate({ output }) : 0;"
    )
    deep, after = run(real_wall, source, 1, 2)
    assert isinstance(deep, Raised)
    assert deep.exception == TOO_DEEP.of(real_wall)
    assert values([after]) == [0]


NESTED = Forms(
    "import copy, json\ndef nested():\n    value = []\n    for _ in range(100_000): value = [value]\n    return value\n",
    "function nested(): any {\n  let value = [];\n  for (let n = 0; n < 100_000; n++) value = [value];\n  return value;\n}\n",
)


@each(
    "body",
    python=[
        pytest.param("json.loads('[' * 100_000)", id="json"),
        pytest.param("repr(nested())", id="repr"),
        pytest.param("compile('-' * 100_000 + '1', '', 'eval')", id="parser"),
        pytest.param("copy.deepcopy(nested())", id="deepcopy"),
    ],
    typescript=[
        pytest.param("String(nested())", id="string"),
        pytest.param("nested().flat(Infinity)", id="flat"),
        pytest.param("let p = {} as any; for (let n = 0; n < 1e6; n++) p = new Proxy(p, {}); p.x", id="proxies"),
    ],
)
def test_a_stack_overflow_in_native_code_is_an_error_of_the_language(wall, body):
    source = NESTED + evaluating(f"\n    if output: {body}\n    return 1", f"if (output) {{ {body}; }}\n  return 1;")
    overflow, after = run(wall, source, 1, 0)
    assert isinstance(overflow, Raised | Exceeded)
    assert isinstance(overflow, Exceeded) or overflow.exception == TOO_DEEP.of(wall)
    assert values([after]) == [1]


def test_a_stack_that_is_used_up_on_a_small_thread_is_a_limit_and_no_crash_of_the_host(wasm_wall):
    source = "def evaluate(output):\n    value = []\n    for _ in range(100_000): value = [value]\n    return 1\n"
    with wasm_wall.open(Program(source=source, filename="evaluator.py"), Confinement()) as session:
        (outcome,) = session.run([b'{"output": 1}'])
    assert isinstance(outcome, Exceeded)
    assert outcome.limit == "stack"


# -- the process ------------------------------------------------------------------------------------------------------
@only_in_python  # the other has no way to end anything
@pytest.mark.parametrize("ending", ["os._exit(0)", "os.abort()"])
def test_ending_the_interpreter_is_a_crash_and_not_a_success(wall, ending):
    source = f"import os\ndef evaluate(output):\n    if output: {ending}\n    return 1\n"
    crashed, after = run(wall, source, 1, 0)
    assert isinstance(crashed, Crashed)
    assert values([after]) == [1]
