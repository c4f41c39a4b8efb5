"""The examples that are there in Python and in TypeScript give the same scores, over thousands of rows that were made to
tell them apart. Every difference that is left has a name, and a reason that is checked row by row.
"""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

import evalcell

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ALPHABETS = [
    "abc xyz",
    "Grüße STRASSE straße İstanbul ΣΊΣΥΦΟΣ ﬃ ǅ",
    "漢字 かな 한국어 ไทย हिन्दी עברית العربية",
    "\U0001d49c\U0001d4b7\U0001d4b8 🙂👩‍👩‍👧 e\u0301 \u200d\u00ad\u2028\u00a0",
    "0123456789 ٠١٢ ²³ ½ Ⅷ _ __ -.,;:!?'\"\\/",
    "\t\n\r\x00\x1f\x7f",
]
TYPESCRIPT, PYTHON = ".ts", ".py"


def scores(example: str, suffix: str, rows: list[dict[str, Any]]) -> list[evalcell.Record]:
    with evalcell.run(EXAMPLES / f"{example}{suffix}", rows, isolation="evaluator") as run:
        return list(run.results())


def text(random: Random, longest: int) -> str:
    alphabet = "".join(random.choices(ALPHABETS, k=random.randrange(1, 4))) + "   "
    return "".join(random.choices(alphabet, k=random.randrange(longest)))


# -- JSON distance ----------------------------------------------------------------------------------------------------
def documents(count: int) -> Iterator[dict[str, Any]]:
    """Pairs of documents, the second the first with some of it changed; as text, as values, and as no JSON at all."""
    for number in range(count):
        random = Random(f"document {number}")
        wanted = value(random, random.randrange(6))
        found = changed(random, wanted)
        as_text = [random.random() < 0.5 for _ in range(2)]
        row = {
            name: json.dumps(item, ensure_ascii=random.random() < 0.5)
            if written and not isinstance(item, str)
            else item
            for name, item, written in zip(("output", "reference"), (found, wanted), as_text, strict=True)
        }
        if random.random() < 0.03:
            row[random.choice(["output", "reference"])] = random.choice(NO_JSON)
        yield row


NO_JSON = [
    "",
    " ",
    "{",
    "[1,]",
    "{'a': 1}",
    "nul",
    "NaN",
    "[Infinity]",
    "01",
    '"\t"',
    "\ufeff1",
    "1 2",
    "🙂",
    "[" * 500,
]
NUMBERS = [0, -0.0, 1, -1, 1.0, 0.1 + 0.2, 1e308, 5e-324, 2**53 - 1, 2**53, 2**53 + 1, -(2**63), 10**30]


def value(random: Random, depth: int) -> Any:
    kind = random.randrange(7 if depth else 5)
    if kind == 5:
        return [value(random, depth - 1) for _ in range(random.randrange(5))]
    if kind == 6:
        return {random.choice(KEYS): value(random, depth - 1) for _ in range(random.randrange(5))}
    return [None, random.random() < 0.5, random.choice(NUMBERS), text(random, 12), random.randrange(3)][kind]


KEYS = [
    "a",
    "b",
    "",
    "läßt",
    "漢",
    "__proto__",
    "constructor",
    "toString",
    "length",
    "0",
    "1",
    "a.b",
    "🙂",
    "hasOwnProperty",
]


def changed(random: Random, item: Any) -> Any:
    if random.random() < 0.1:
        return value(random, 2)
    if isinstance(item, list):
        return [changed(random, each) for each in item][: random.randrange(len(item) + 3)]
    if isinstance(item, dict):
        kept = {key: changed(random, each) for key, each in item.items() if random.random() < 0.95}
        return kept | ({random.choice(KEYS): None} if random.random() < 0.1 else {})
    if isinstance(item, bool):
        return int(item) if random.random() < 0.3 else item
    return item + 1 if isinstance(item, int) and random.random() < 0.1 else item


def with_verdicts_apart(item: Any) -> Any:
    """True and 1 are one in Python, and two in JSON and in TypeScript."""
    if isinstance(item, bool):
        return f"verdict {item}"
    return walked(item, with_verdicts_apart)


def with_numbers_as_floats(item: Any) -> Any:
    """TypeScript has one kind of numbers, which holds no more than 53 bits."""
    if isinstance(item, int) and not isinstance(item, bool):
        return float(item)
    return walked(item, with_numbers_as_floats)


def walked(item: Any, each: Callable[[Any], Any]) -> Any:
    if isinstance(item, list):
        return [each(inner) for inner in item]
    return {key: each(inner) for key, inner in item.items()} if isinstance(item, dict) else item


def decoded(item: Any) -> Any:
    return json.loads(item) if isinstance(item, str) else item


def in_python(row: dict[str, Any], *seen_as: Callable[[Any], Any]) -> float:
    """What the Python example gives for a row that is seen in another way."""
    namespace: dict[str, Any] = {}
    exec((EXAMPLES / "json_distance.py").read_text(), namespace)
    sides = [decoded(row[name]) for name in ("output", "reference")]
    for see in seen_as:
        sides = [see(side) for side in sides]
    return float(namespace["differences"](*sides))


def why_json_differs(row: dict[str, Any], python: evalcell.Record, typescript: evalcell.Record) -> str | None:
    """The name of an allowed difference, once it is sure that there is nothing else."""
    if (python.label == "invalid") != (typescript.label == "invalid"):
        written = " ".join(side for side in row.values() if isinstance(side, str))
        return "NaN and Infinity are JSON in Python alone" if "NaN" in written or "Infinity" in written else None
    if typescript.score == in_python(row, with_verdicts_apart):
        return "1 == True"
    if typescript.score == in_python(row, with_verdicts_apart, with_numbers_as_floats):
        return "numbers of more than 53 bits"
    return None


def test_json_distance_gives_the_same_in_both():
    rows = list(documents(6_000)) + [
        {"output": json.dumps(large), "reference": json.dumps(other)}
        for large, other in [([[n, str(n)] for n in range(50_000)], [[n, str(n + n % 2)] for n in range(49_000)])]
    ]
    pairs = list(zip(rows, *(scores("json_distance", suffix, rows) for suffix in (PYTHON, TYPESCRIPT)), strict=True))
    different = [pair for pair in pairs if (pair[1].score, pair[1].label) != (pair[2].score, pair[2].label)]
    reasons = [why_json_differs(*pair) for pair in different]
    unexplained = [pair for pair, reason in zip(different, reasons, strict=True) if reason is None]
    assert not unexplained, unexplained[:3]
    assert set(reasons) == {  # each of which has occurred, or it would not belong here
        "1 == True",
        "numbers of more than 53 bits",
        "NaN and Infinity are JSON in Python alone",
    }
    assert len(different) < len(rows) / 4
    assert {pair[1].label for pair in pairs} == {"match", "mismatch", "invalid"}
    assert pairs[-1][2].score == 24_500 + 1_000


# -- word overlap -----------------------------------------------------------------------------------------------------
def texts(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        random = Random(f"text {number}")
        reference = text(random, 400 if number % 50 else 20_000)
        words = reference.split(" ")
        output = " ".join(word for word in words if random.random() < 0.8) + text(random, 40)
        row: dict[str, Any] = {"output": output, "reference": reference}
        if random.random() < 0.05:
            row[random.choice(["output", "reference"])] = random.choice(["", None, 0, 12.5, True, "a", "a b c", " "])
        yield row


UNHASHED = """
# /// script
# dependencies = ["scikit-learn"]
# ///
import math
from collections import Counter

from sklearn.feature_extraction.text import HashingVectorizer

WORDS = HashingVectorizer(n_features=2**18, analyzer="word", norm=None, alternate_sign=False)

def evaluate(output, reference):
    a, b = (Counter(WORDS.build_analyzer()(str(text or ""))) for text in (output, reference))
    lengths = math.hypot(*a.values()) * math.hypot(*b.values())
    words = set(a) | set(b)
    return {
        "score": sum(a[word] * b[word] for word in words) / lengths if lengths else 0.0,
        "same_hash": len(words) - WORDS.transform([" ".join(words)]).nnz,
    }
"""


@pytest.fixture(scope="module")
def unhashed(tmp_path_factory, engine_address) -> Callable[[list[dict[str, Any]]], list[evalcell.Record]]:
    """The cosine of each row with scikit-learn's words, counted as they are, and how many of them share a hash."""
    path = tmp_path_factory.mktemp("unhashed") / "unhashed.py"
    path.write_text(UNHASHED)

    def scored(rows: list[dict[str, Any]]) -> list[evalcell.Record]:
        with evalcell.run(path, rows, isolation="evaluator") as run:
            return list(run.results())

    return scored


def close(one: evalcell.Record, other: evalcell.Record) -> bool:
    assert one.score is not None
    assert other.score is not None
    return math.isclose(one.score, other.score, rel_tol=1e-9, abs_tol=1e-9)


def test_word_overlap_gives_the_same_in_both_but_for_words_that_share_a_hash(unhashed):
    """Which are one word in Python. Where that makes a difference, TypeScript has what it would be without hashes."""
    rows = list(texts(3_000))
    pairs = list(zip(*(scores("hashing_similarity", suffix, rows) for suffix in (PYTHON, TYPESCRIPT)), strict=True))
    assert all(python.status == typescript.status == "scored" for python, typescript in pairs)
    assert all(python.label == typescript.label for python, typescript in pairs)
    exact = unhashed(rows)
    assert all(close(typescript, true) for (_, typescript), true in zip(pairs, exact, strict=True))
    different = [not close(*pair) for pair in pairs]
    assert all(true.metadata["same_hash"] for true, differs in zip(exact, different, strict=True) if differs)
    assert sum(different) < len(rows) / 20
    assert len({python.score for python, _ in pairs}) > 1_000


def test_word_overlap_is_a_cosine_of_counts():
    """Against an oracle of neither, so that both cannot be wrong alike."""
    rows = [
        {"output": "aa bb bb", "reference": "bb cc"},
        {"output": "a b", "reference": "a b"},
        {"output": "ßß SS", "reference": "ss ßß"},
    ]
    found = [record.score for record in scores("hashing_similarity", TYPESCRIPT, rows)]
    assert found == pytest.approx([2 / math.sqrt(10), 0.0, 1.0])


# -- rows that are shipped --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("example", "dataset"), [("json_distance", "extraction"), ("hashing_similarity", "support_answers"), ("starter", "starter")]
)  # fmt: skip
def test_twins_agree_on_the_rows_that_are_shipped(example, dataset, engine_address):
    rows = [json.loads(line) for line in (EXAMPLES / f"{dataset}.jsonl").read_text().splitlines()]
    python, typescript = (scores(example, suffix, rows) for suffix in (PYTHON, TYPESCRIPT))
    assert [record.score for record in typescript] == pytest.approx([record.score for record in python], abs=1e-9)
    assert [record.label for record in typescript] == [record.label for record in python]
    assert [record.passed for record in typescript] == [record.passed for record in python]
    if example != "json_distance":  # where parsers say in their own words what is wrong
        assert [record.explanation for record in typescript] == [record.explanation for record in python]
