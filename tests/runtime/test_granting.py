"""Values that were granted are hidden wherever code lets them out."""

import base64
import html
import json
import re
import secrets
import sys
import time
from urllib.parse import quote

import pytest

from evalcell.errors import UsageError
from evalcell.granting import LEAST_CHARACTERS, Mask, granted_values
from evalcell_sandboxes import Confinement, Crashed, Exceeded, FakeSandbox, Invalid, Program, Raised, Returned

SECRET = 's3cr3t/with+odd chars="é"'
HIDDEN = "[TOKEN is hidden]"


@pytest.fixture
def mask():
    return Mask({"TOKEN": SECRET, "SHORT": "true", "EMPTY": ""})


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        repr(SECRET)[1:-1],
        ascii(SECRET)[1:-1],
        SECRET.encode("unicode_escape").decode(),
        json.dumps(SECRET)[1:-1],
        quote(SECRET, safe=""),
        quote(SECRET),
        repr(SECRET.encode())[2:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        SECRET.encode().hex(),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        SECRET.encode().hex().upper(),
        re.sub("%..", lambda escape: escape[0].lower(), quote(SECRET, safe="")),
        html.escape(SECRET),
        json.dumps(json.dumps(SECRET))[3:-3],
    ],
)
def test_a_value_is_hidden_however_it_is_usually_written(mask, form):
    shown = mask.text(f"before {form} after {form}")
    assert form[:-4] not in shown
    assert shown.startswith(f"before {HIDDEN}")
    assert "after" in shown


def test_a_value_is_hidden_where_a_text_with_both_quotes_is_quoted():
    value = "it's-a-secret-token"
    shown = Mask({"TOKEN": value}).text(repr({"said": f'the "token" {value}'}))
    assert shown == repr({"said": 'the "token" HERE'}).replace("HERE", HIDDEN)


@pytest.mark.parametrize("user", ["", "u", "us", "user", "somebody"])
@pytest.mark.parametrize("rest", ["", ":", "\n", ":x"])
def test_a_value_is_hidden_in_a_header_with_a_name_before_it(mask, user, rest):
    header = base64.b64encode(f"{user}:{SECRET}{rest}".encode()).decode()
    shown = mask.text(f"Basic {header}")
    assert HIDDEN in shown
    assert not any(header[at : at + 12] in shown for at in range(len(user) + 8, len(header) - 20))


@pytest.mark.parametrize("value", [f"{SECRET}\n", f"  {SECRET}", f"first line\r\n{SECRET}\t\n"])
def test_a_value_with_space_around_it_is_hidden_without_it_too(value):
    mask = Mask({"TOKEN": value})
    assert "s3cr3t" not in mask.text(f"it is {SECRET}!")
    encoded = base64.b64encode(SECRET.encode()).decode()
    assert encoded[:12] not in mask.text(f"it is {encoded}!")


def test_a_value_that_was_cut_in_a_short_text_without_a_note_is_hidden(mask):
    assert "s3cr3t" not in mask.text((SECRET * 9)[:200])
    assert "s3cr3t" not in mask.text(SECRET[:15])
    cut = "grüße-\\xc3\n[28 more bytes were dropped: the limit is 9]"
    assert "grüße" not in Mask({"T": "grüße-über-alles"}).text(cut)


def test_hiding_is_done_in_time_for_values_that_are_large_or_dull():
    text = "a" * 500_000 + "b"
    for value in ("a" * 100_000, "ab" * 50_000, secrets.token_hex(60_000)):
        mask = Mask({"TOKEN": value})
        began = time.monotonic()
        mask.text(text)
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("many", [["x"] * 200_000, list(range(150_000)), dict.fromkeys(map(str, range(80_000)), "y")])
def test_a_result_of_very_many_parts_is_looked_through_in_time(many):
    lines = [base64.b64encode(secrets.token_bytes(48)).decode() for _ in range(60)]
    mask = Mask({"KEY": "\n".join(lines), "PIN": "1234567890"})
    value = json.dumps({"score": 1, "metadata": {"many": many, "last": f"the {lines[30]}"}}).encode()
    began = time.monotonic()
    shown = mask.outcome(Returned(value=value))
    assert time.monotonic() - began < 10
    assert json.loads(shown.value) == {"score": 1, "metadata": {"many": many, "last": "the [KEY is hidden]"}}


@pytest.mark.parametrize("text", ["correct", "incorrect", "correct,", "ct,incorr"])
def test_a_part_of_a_value_is_left_alone_in_a_result_which_nobody_has_cut(text):
    outcome = Returned(value=json.dumps({"label": text, text: [text]}).encode())
    assert Mask({"LABELS": "correct,incorrect"}).outcome(outcome) == outcome


def test_a_value_that_was_cut_is_hidden_also_where_something_else_was_said_after_the_note(mask):
    note = "\n[6 more bytes were dropped: the limit is 65536]"
    shown = mask.text(f"é{SECRET[:12]}{note}hello {SECRET[:9]}")
    assert shown == f"é{HIDDEN}{note}hello {HIDDEN}"


def test_keys_that_are_the_same_once_hidden_stay_two(mask):
    shown = mask.outcome(Returned(value=json.dumps({SECRET: 1, quote(SECRET, safe=""): 3}).encode()))
    assert len(json.loads(shown.value)) == 2


def test_a_short_value_is_left_alone(mask):
    assert mask.text("it is true") == "it is true"
    assert len("true") < LEAST_CHARACTERS


def test_the_longest_value_counts_where_one_holds_another():
    mask = Mask({"A": "password", "B": "password-of-the-database"})
    assert mask.text("x password-of-the-database y password z") == "x [B is hidden] y [A is hidden] z"


def test_lines_of_a_value_with_many_are_hidden_one_by_one():
    mask = Mask({"KEY": "-----BEGIN-----\nMIIBVgIBADANBg\n-----END-----"})
    assert "MIIBVgIBADANBg" not in mask.text("second line: MIIBVgIBADANBg")


@pytest.mark.parametrize("size", range(6, len(SECRET)))
def test_the_part_of_a_value_that_was_not_cut_off_is_hidden_too(mask, size):
    cut = "x" * 50 + SECRET[:size] + "\n[7 more bytes were dropped: the limit is 10]"
    assert SECRET[:size] not in mask.text(cut)
    assert mask.text(cut).endswith("the limit is 10]")
    assert SECRET[-size:] not in mask.text(SECRET[-size:] + "y" * 300)


@pytest.mark.parametrize(
    "outcome",
    [
        Returned(value=json.dumps({"score": 1, "explanation": SECRET, "metadata": {SECRET: [SECRET]}}).encode()),
        Returned(value=('"' + "".join(f"\\u{ord(c):04x}" for c in SECRET) + '"').encode()),
        Returned(value=b"not json " + SECRET.encode()),
        Raised(exception="ValueError", message=f"bad {SECRET}", traceback=f"  raise ValueError({SECRET!r})"),
        Exceeded(limit="memory_bytes", message=SECRET),
        Crashed(message=SECRET),
        Invalid(message=SECRET),
        Returned(value=b"1", stdout=f"out {SECRET}", stderr=f"err {SECRET}"),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_no_outcome_carries_a_value(mask, outcome):
    shown = mask.outcome(outcome)
    assert type(shown) is type(outcome)
    text = repr(shown) + (json.dumps(_decoded(shown.value)) if isinstance(shown, Returned) else "")
    assert SECRET not in text
    assert "s3cr3t" not in text


def _decoded(value):
    try:
        return json.loads(value)
    except ValueError:
        return value.decode()


@pytest.mark.parametrize(
    ("granted", "value"),
    [
        pytest.param("1234567890", b"1234567890.0", id="as-a-float"),
        pytest.param("1234567890", b'{"score":1234567890}', id="in-a-table"),
        pytest.param("1234567890", b"[-1234567890]", id="negative"),
        pytest.param("0012345678", b"12345678", id="without-its-zeros"),
        pytest.param("+14155550123", b"14155550123", id="without-its-plus"),
        pytest.param("0.12345678901", b"0.12345678901", id="a-fraction"),
        pytest.param("12345678901234567890", b"1.2345678901234567e+19", id="with-an-exponent"),
        pytest.param("123456789012", b"91234567890120", id="in-a-larger-one"),
    ],
)
def test_a_value_that_comes_back_as_a_number_is_no_result(granted, value):
    assert isinstance(Mask({"PIN": granted}).outcome(Returned(value=value)), Invalid)


@pytest.mark.parametrize(
    ("granted", "value"),
    [
        pytest.param("1234567890", b"0.5", id="another-number"),
        pytest.param("1234567890", b"91234567890.5", id="too-short-to-be-told-from-chance"),
        pytest.param("0000000001", b'{"score": 1}', id="little-but-zeros"),
        pytest.param("12.345.678.90", b"1234567890", id="no-number"),
        pytest.param("1.0000000", b"[1, 1.0, true]", id="zeros-after-a-point"),
        pytest.param("0.50000000", b"0.5", id="zeros-after-a-fraction"),
        pytest.param("...........", b"0", id="no-digits"),
        pytest.param("1234567890", b"1" + b"0" * 400, id="too-large-for-a-float"),
    ],
)
def test_a_number_that_is_none_of_the_values_is_a_result(granted, value):
    assert Mask({"PIN": granted}).outcome(Returned(value=value)).value == value


def test_a_number_is_hidden_in_text_without_its_zeros_too():
    assert Mask({"PIN": "0012345678"}).text("it is 12345678!") == "it is [PIN is hidden]!"
    assert Mask({"CALL": "+14155550123"}).text("call 14155550123") == "call [CALL is hidden]"


def test_every_way_out_of_a_session_is_looked_at():
    def hooks(source):
        def say(*_, **__):
            sys.stdout.write(SECRET)
            return {"explanation": SECRET}

        return {"evaluate": say, "fit": say, "aggregate": say}

    with FakeSandbox(hooks).open(Program(source="", filename="e.py"), Confinement()) as session:
        masked = Mask({"TOKEN": SECRET}).around(session)
        outcomes = [masked.fit([]), *masked.run([b"{}", b"{}"]), masked.aggregate(b"[]"), masked.loaded]
        control = [session.fit([]), *session.run([b"{}", b"{}"]), session.aggregate(b"[]")]
    assert len(outcomes) == 5
    assert "s3cr3t" not in repr(outcomes)
    assert all("s3cr3t" in repr(outcome) for outcome in control[1:])


def test_values_are_read_here_and_now_and_a_missing_one_is_named(monkeypatch):
    monkeypatch.setenv("GRANTED", "value")
    monkeypatch.delenv("ABSENT", raising=False)
    assert granted_values(["GRANTED"]) == {"GRANTED": "value"}
    with pytest.raises(UsageError, match="'ABSENT' is granted, but not set here"):
        granted_values(["GRANTED", "ABSENT"])


@pytest.mark.parametrize("token", ["ghp_abcdefghijklmnop1234", "A" * 61, "d41d8cd98f00b204e9800998ecf8427e"[1:]])
def test_a_token_that_passes_for_a_name_is_not_repeated(token):
    with pytest.raises(UsageError, match="not set here") as refusal:
        granted_values([token])
    assert token not in str(refusal.value)


def test_a_confinement_does_not_show_what_it_holds():
    assert "hunter2" not in repr(Confinement(environment={"TOKEN": "hunter2"}))
    assert "TOKEN" in repr(Confinement(environment={"TOKEN": "hunter2"}))
