"""Everything on the host that reads bytes from behind the wall, or from another stranger, given bytes at random.

The property is the same everywhere: a valid value or one of the errors that were promised, of bounded size, and never
another exception. The guest itself takes part where a value has to go through it.
"""

import contextlib
import json
import math
import socket
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from forging import SAY, needs_the_box
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plans import plan
from wasmtime import WasmtimeError

from evalcell import records
from evalcell.aggregating import aggregates_of
from evalcell.binding import Binding, bind
from evalcell.blocks import read as read_block
from evalcell.cli.text import printable, shown
from evalcell.configuration import Operator
from evalcell.datasets import Row
from evalcell.engine.protocol import Done, Faulted, Frames, Opened, decode_from_lane, send
from evalcell.engine.ready import Ready, RowBinder
from evalcell.engine.rows import RowWork
from evalcell.errors import EvaluatorError, UsageError
from evalcell.evaluator import Evaluator, understand
from evalcell.output import Output
from evalcell.paths import MISSING, Path
from evalcell.records import Aggregates
from evalcell.settings import settle
from evalcell.tally import Tally
from evalcell_sandboxes import (
    Confinement,
    Crashed,
    Description,
    Exceeded,
    Invalid,
    Isolation,
    Limits,
    Outcome,
    Program,
    Raised,
    Returned,
    SyntaxProblem,
    Usage,
    sandbox,
)
from evalcell_sandboxes.reports import described, most_report_bytes
from evalcell_sandboxes.wasm.failure import outcome_of_trap
from evalcell_sandboxes.wasm.guests import Report
from evalcell_sandboxes.wasm.session import WasmSession

quick = settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
through_the_guest = settings(quick, max_examples=100)

WORDS = st.sampled_from(
    ["score", "value", "label", "name", "key", "passed", "scores", "namedScores", "metadata", "explanation", "kind",
     "returned", "raised", "message", "stdout", "limits", "tool", "evalcell", "output", "bind", "set", "range",
     "labels", "wall_seconds", "memory_bytes", "isolation", "env", "hooks", "imports", "parameters", "line", "block"]
)  # fmt: skip
TEXT = st.text(max_size=20) | WORDS
NUMBERS = (
    st.integers()
    | st.floats()
    | st.sampled_from([0, 1, -0.0, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**40, 10**400, 1e308, 5e-324])
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=12,
)


@st.composite
def damaged(draw: st.DrawFn, texts: st.SearchStrategy[bytes]) -> bytes:
    """A text with a few of its bytes cut out, doubled or replaced."""
    text = bytearray(draw(texts))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text[at : at + draw(st.integers(0, 3))] = draw(
            st.binary(max_size=3) | st.sampled_from([b'"', b"\\", b"[" * 2_000, b"{", b"}", b",", b"\\ud800", b"\0"])
        )
    return bytes(text)


def as_json(values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return values.map(lambda value: json.dumps(value).encode())


def is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True


ANY_JSON = damaged(as_json(JSON))
REPORTS = damaged(
    as_json(
        st.fixed_dictionaries(
            {"kind": st.sampled_from(["returned", "raised", "exceeded", "invalid", "crashed", ""])},
            optional=dict.fromkeys(("value", "type", "message", "traceback", "stdout", "stderr"), JSON),
        )
    )
)


LIMITS = Limits(stdout_bytes=100, stderr_bytes=100, result_bytes=1_000)


def assert_bounded(outcome: Outcome) -> None:
    assert len(getattr(outcome, "value", b"")) <= LIMITS.result_bytes
    assert max(len(outcome.stdout), len(outcome.stderr)) <= 500
    assert len(getattr(outcome, "message", "")) <= 4_000
    assert len(getattr(outcome, "exception", "")) <= 200
    assert len(getattr(outcome, "traceback", "")) <= 16_000


@pytest.fixture(scope="module")
def session() -> Iterator[WasmSession]:
    program = Program(source="def evaluate(output): return output\n", filename="evaluator.py")
    with sandbox("wasm").open(program, Confinement(limits=LIMITS)) as session:
        assert isinstance(session, WasmSession)
        yield session


UNIT = Output(kind="continuous", low=0.0, high=1.0, threshold=0.5)
VERDICT = Output(kind="categorical", labels={"good": 1.0, "bad": 0.0, "": None})


def recorded(outcome: Outcome, output: Output) -> list[records.Record]:
    working = RowWork(plan(output))
    working._items, working._outcomes = [Ready(Row(0, 1, b"{}"), 0, b"{}")], [outcome]
    (lines,) = working.take().rows
    return [records.decode(line) for line in lines.splitlines()]


def assert_recordable(outcome: Outcome, output: Output) -> None:
    """The outcome becomes records that can be read again, with scores that are scores."""
    found = recorded(outcome, output)
    assert found
    for record in found:
        assert (record.status == "failed") == (record.error is not None)
        assert record.score is None or math.isfinite(record.score)
        if record.status == "scored" and output is UNIT:
            assert 0 <= record.score <= 1
        if record.status == "scored" and output is VERDICT:
            assert record.label in VERDICT.labels


@quick
@given(st.one_of(REPORTS, ANY_JSON, st.binary(max_size=200)), st.none() | st.tuples(st.binary(max_size=200), st.binary(max_size=200)), st.sampled_from([Output(), UNIT, VERDICT]))  # fmt: skip
def test_any_report_is_an_outcome_that_can_be_recorded(session, text, raw, output):
    outcome = session._read(Report(text, Usage(), raw), LIMITS.result_bytes)
    assert isinstance(outcome, Outcome)
    assert_bounded(outcome)
    assert_recordable(outcome, output)


FIELDS = ["value", "type", "message", "traceback", "stdout", "stderr"]


@pytest.mark.parametrize("kind", ["returned", "raised", "exceeded", "invalid"])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("size", [100, 2_000, 200_000, 10**7])
def test_a_forged_report_keeps_to_the_limits_too(session, kind, field, size):
    text = json.dumps({"kind": kind, field: "x" * size}).encode()[: most_report_bytes(session._limits) + 1]
    outcome = session._read(Report(text, Usage(), None), LIMITS.result_bytes)
    assert_bounded(outcome)
    too_large = size == 10**7 or (kind == "returned" and field == "value" and size > LIMITS.result_bytes)
    assert isinstance(outcome, Invalid) == (kind == "invalid" or too_large)


@quick
@given(st.one_of(ANY_JSON, st.binary(max_size=100)), st.sampled_from([Output(), UNIT, VERDICT]))
def test_any_value_that_came_back_is_scored_or_refused(value, output):
    assert_recordable(Returned(value=value), output)


@quick
@given(JSON.map(json.dumps) | st.text(max_size=100), st.booleans())
def test_any_description_is_read_or_refused(text, failed):
    answer = (f'{{"syntax_error":{text}}}' if failed else text).encode("utf-8", "replace")
    assert isinstance(described(answer, Limits()), Description | SyntaxProblem | Exceeded | Crashed)


HOOKS = st.fixed_dictionaries(
    {"name": st.sampled_from(["evaluate", "fit", "aggregate", ""]), "line": st.integers(0, 2**63 - 1)},
    optional={
        "is_async": st.booleans(),
        "parameters": st.none()
        | st.lists(
            st.fixed_dictionaries(
                {"name": TEXT},
                optional={
                    "kind": st.sampled_from(["positional_only", "ordinary", "variadic", "keyword_only", "any_keyword"]),
                    "default": st.none() | TEXT,
                },
            ),
            max_size=4,
        ),
    },
)
TABLES = st.fixed_dictionaries(
    {},
    optional={
        "dependencies": st.lists(TEXT, max_size=3) | JSON,
        "requires-python": TEXT | JSON,
        "tool": st.fixed_dictionaries({}, optional={"evalcell": st.dictionaries(WORDS, JSON, max_size=4), "uv": JSON})
        | JSON,
        "x": JSON,
    },
)


@quick
@given(TABLES | st.dictionaries(TEXT, JSON, max_size=3), st.lists(HOOKS, max_size=3))
def test_any_block_and_signature_is_planned_or_refused(table, hooks):
    text = json.dumps({"hooks": hooks, "imports": [], "block": {"line": 1, "table": table}})
    with contextlib.suppress(msgspec.DecodeError, EvaluatorError, UsageError):
        answer = described(text.encode("utf-8", "replace"), Limits())
        understood = understand(Evaluator.from_source("", name="fuzzed"), answer)
        settled = settle(understood.manifest, Operator())
        bind(understood.evaluate, settled.bind, settled.set)


@quick
@given(st.dictionaries(WORDS, JSON, max_size=4))
def test_any_table_of_ours_is_settled_or_refused(own):
    with contextlib.suppress(EvaluatorError, UsageError):
        settle(read_block({"tool": {"evalcell": own}}, 1), Operator())


@quick
@given(st.lists(st.binary(max_size=60) | ANY_JSON, max_size=5), st.integers(1, 64))
def test_any_bytes_from_a_lane_are_messages_or_a_decoding_error(chunks, size):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"".join(chunks))
        theirs.shutdown(socket.SHUT_WR)
        frames = Frames(ours)
        while (bodies := frames.receive()) is not None:
            for body in bodies:
                with contextlib.suppress(msgspec.DecodeError):
                    decode_from_lane(body)


@quick
@given(
    st.lists(
        st.builds(Faulted, st.text(max_size=20))
        | st.builds(Done, st.lists(st.binary(max_size=20), max_size=3), st.just(Tally()), st.lists(st.text(max_size=5)))
        | st.builds(Opened, st.builds(lambda text: Raised(exception="E", message=text), st.text(max_size=20))),
        max_size=5,
    )
)
def test_what_a_lane_sends_arrives_however_it_is_cut(messages):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for message in messages:
            send(theirs, message)
        theirs.shutdown(socket.SHUT_WR)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        frames, heard = Frames(ours), []
        while (bodies := frames.receive()) is not None:
            heard += [decode_from_lane(body) for body in bodies]
    assert heard == messages


PATHS = st.sampled_from(
    ["output", "output.a", "output[0]", "output[-1]", "output[*]", "output[*].a", "output[::-1]", "$", "['']", "$[*]",
     "output[1:3][*].a", "output.a.b.c[0][0]"]
)  # fmt: skip


@quick
@given(
    damaged(as_json(st.dictionaries(st.sampled_from(["output", "id", "a", ""]), JSON, max_size=3))) | ANY_JSON,
    st.lists(PATHS, min_size=1, max_size=3),
    st.none() | PATHS,
)
def test_any_row_is_bound_or_refused(text, paths, id_path):
    bindings = [Binding(f"p{n}", path=path, optional=n == 1) for n, path in enumerate(paths)]
    ready = RowBinder(plan(None, *bindings, id_path=id_path)).bind(Row(0, 1, text))
    if ready.error is None:
        assert set(msgspec.json.decode(ready.arguments, type=dict[str, msgspec.Raw])) <= {"p0", "p1", "p2"}
    else:
        assert ready.error.kind == "binding"
        assert len(ready.error.message) < 10_000


@quick
@given(
    st.text(max_size=40) | st.text(alphabet=".[]'\"*:$?@-0123456789ab\\ ", max_size=40),
    as_json(JSON).filter(is_json),
)
def test_any_path_is_refused_or_finds_json_or_nothing(text, row):
    with contextlib.suppress(UsageError):
        found = Path(text).find(row)
        assert found is MISSING or json.loads(bytes(found)) is not ...


@quick
@given(st.text(max_size=60), st.booleans())
def test_whatever_is_printed_cannot_command_a_terminal(text, lines):
    safe = printable(text, lines=lines)
    assert all(c.isprintable() or (lines and c == "\n") for c in safe)
    assert safe.isascii() or safe.encode("utf-8")
    assert len(safe) <= 10 * len(text)


@quick
@given(JSON)
def test_whatever_is_shown_is_one_short_line(value):
    assert len(shown(value)) < 1_000
    assert "\n" not in shown(value)


@quick
@given(st.text(max_size=100) | st.sampled_from(["wasm trap: interrupt", "call stack exhausted", "Caused by:", "Caused by:\n  \n"]), st.none() | st.text(max_size=20), st.floats())  # fmt: skip
def test_any_trap_is_a_limit_or_a_crash(text, denial, seconds):
    outcome = outcome_of_trap(WasmtimeError(text), denial, "wall_seconds", seconds, Usage())
    assert isinstance(outcome, Exceeded | Crashed)
    assert outcome.message
    assert len(outcome.message) < 500


# -- through the real guest ------------------------------------------------------------------------------------------

# The code sees to it that its own report is the one that is believed: it speaks once and has the guest keep silent.
FORGER = f"""{SAY}
def evaluate(output):
    if output is None: return "honest"
    say(output)
    silence()
"""
# It writes what it likes where rows are answered, and has the guest add nothing to it.
SCRIBBLER = f"""{SAY}
def evaluate(output):
    if output is None: return "honest"
    words, text, at = output
    text = bytes.fromhex(text)
    answers.box[at : at + len(text)] = text
    for number, word in enumerate(words): answers.words[number] = word
    silence()
"""
RETURNER = "from math import inf, nan\ndef evaluate(output): return eval(output)\n"
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=10) | st.binary(max_size=5) | st.complex_numbers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5) | st.integers() | st.booleans() | st.none(), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def forger() -> Iterator[WasmSession]:
    with sandbox("wasm").open(Program(source=FORGER, filename="forger.py"), Confinement()) as session:
        assert isinstance(session.loaded, Returned)
        yield session


@pytest.fixture(scope="module", params=list(Isolation))
def scribbler(request) -> Iterator[WasmSession]:
    program, confinement = Program(source=SCRIBBLER, filename="scribbler.py"), Confinement(isolation=request.param)
    with sandbox("wasm").open(program, confinement) as session:
        assert isinstance(session.loaded, Returned)
        yield session


@pytest.fixture(scope="module")
def returner() -> Iterator[WasmSession]:
    confinement = Confinement(isolation=Isolation.EVALUATOR)
    with sandbox("wasm").open(Program(source=RETURNER, filename="returner.py"), confinement) as session:
        assert isinstance(session.loaded, Returned)
        yield session


@needs_the_box
def test_the_forger_is_believed_about_its_own_row(forger):
    """Or else the test below would prove nothing."""
    forged, honest = forger.run(
        [json.dumps({"output": output}).encode() for output in ('{"kind":"returned","value":7}', None)]
    )
    assert isinstance(forged, Returned)
    assert forged.value == b"7"
    assert isinstance(honest, Returned)


@through_the_guest
@given(st.one_of(REPORTS, ANY_JSON).map(lambda text: text.decode("utf-8", "replace")))
def test_any_report_that_code_forges_is_its_own_rows_alone(forger, text):
    rows = [json.dumps({"output": output}).encode() for output in (text, None)]
    forged, honest = forger.run(rows)
    assert isinstance(forged, Outcome)
    assert_recordable(forged, UNIT)
    assert isinstance(honest, Returned)
    assert honest.value == b'"honest"'


WORD = st.integers(0, 2**32 - 1) | st.integers(0, 5) | st.sampled_from([16, 17, 60, 2**18 - 1, 2**18, 2**18 + 1, 2**31])
BOX = st.one_of(st.binary(max_size=200), REPORTS, st.lists(REPORTS, max_size=4).map(b"\n".join)).map(
    lambda text: (text + b"\n").hex()
)


@through_the_guest
@given(st.lists(WORD, min_size=3, max_size=3), BOX, st.sampled_from([16, 0, 15, 2**18 - 20]))
def test_whatever_code_writes_where_rows_are_answered_each_row_has_an_outcome(scribbler, words, text, at):
    rows = [json.dumps({"output": output}).encode() for output in (None, [words, text, at], None)]
    outcomes = list(scribbler.run(rows))
    assert len(outcomes) == 3
    for outcome in outcomes:
        assert isinstance(outcome, Outcome)
        assert_recordable(outcome, UNIT)
    if scribbler._fresh_rows:
        assert [outcome.value for outcome in outcomes[::2]] == [b'"honest"'] * 2


@needs_the_box
def test_the_scribbler_is_believed_about_its_own_row(scribbler):
    """Or else the test above would prove nothing."""
    text = b'{"kind":"returned","value":7}\n'
    (outcome,) = scribbler.run([json.dumps({"output": [[1, 0, 16 + len(text)], text.hex(), 16]}).encode()])
    assert isinstance(outcome, Returned)
    assert outcome.value == b"7"


@through_the_guest
@given(VALUES)
def test_any_value_that_is_returned_arrives_whole_or_is_refused(returner, value):
    text = repr(value)
    (outcome,) = returner.run([json.dumps({"output": text}).encode()])
    assert isinstance(outcome, Returned | Invalid | Raised), outcome
    assert_recordable(outcome, Output())
    if isinstance(outcome, Returned):
        assert json.loads(outcome.value) == json.loads(json.dumps(value))


@quick
@given(ANY_JSON | damaged(as_json(st.dictionaries(TEXT, NUMBERS | st.none(), max_size=120))))
def test_whatever_aggregate_returns_is_numbers_or_an_error(text):
    found = aggregates_of(Returned(value=text), "e")
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Aggregates)
    json.dumps(sent.numbers, allow_nan=False)
    assert sent == found
    assert not (found.numbers and found.error)
    assert found.error is None or len(found.error.message) < 1_000
