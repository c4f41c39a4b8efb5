"""An evaluator that does a little of everything that evaluators do. It is run while the image is built, and forgotten.

CPython warms up: it rewrites bytecode, numbers types and remembers where methods were found. Rows start from a state
before they have warmed anything up, so what is warm in the image need not be warmed, and its memory put back, for
every one of them. What this file does not touch works all the same.
"""

import collections
import dataclasses
import datetime
import decimal
import difflib
import enum
import fractions
import functools
import hashlib
import itertools
import json
import math
import random
import re
import statistics
import string
import textwrap
import unicodedata

WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")


@dataclasses.dataclass(frozen=True)
class Found:
    name: str
    score: float = 0.0


class Verdict(enum.Enum):
    GOOD = "good"
    BAD = "bad"


@functools.lru_cache
def tokens(text):
    return tuple(WORD.findall(text.lower()))


def evaluate(output, reference, **others):
    """Fails, prints, or returns one of the shapes that people return."""
    if output is None:
        raise ValueError("there is no output")
    scores = [compare(output, reference) for compare in COMPARISONS]
    if output == reference:
        return scores[0]
    if output.startswith("print"):
        print("compared", len(scores), Verdict("good").name, others.get("missing"))  # noqa: T201
        return {"score": statistics.fmean(scores), "label": json.dumps(output), "metadata": {"scores": scores}}
    return scores[0] > 1


def same(output, reference):
    return float(output.strip().casefold() == reference.strip().casefold())


def contains(output, reference):
    missing = [word for word in reference.split() if word not in output]
    return 1.0 - len(missing) / max(1, len(reference.split()))


def cosine(output, reference):
    found, wanted = (collections.Counter(WORD.findall(text.lower())) for text in (output, reference))
    shared = sum(count * wanted[word] for word, count in found.items())
    lengths = math.sqrt(sum(n * n for n in found.values()) * sum(n * n for n in wanted.values()))
    return shared / lengths if lengths else 0.0


def overlap(output, reference):
    found, wanted = set(tokens(output)), set(tokens(reference))
    precision, recall = (len(found & wanted) / max(1, len(part)) for part in (found, wanted))
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def ratio(output, reference):
    return difflib.SequenceMatcher(None, output, reference).ratio()


def distance(output, reference):
    """Levenshtein's, row by row of the matrix."""
    before = list(range(len(reference) + 1))
    for i, left in enumerate(output, 1):
        row = [i]
        for j, right in enumerate(reference, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (left != right)))
        before = row
    return 1 - before[-1] / max(len(output), len(reference), 1)


def documents(output, reference):
    """How many leaves of two JSON documents agree."""
    left, right = (
        dict(leaves(json.loads(json.dumps({"text": text, "items": [{"n": 1.5, "ok": True}, None, text.split()]}))))
        for text in (output, reference)
    )
    paths = sorted(left.keys() | right.keys(), key=str)
    return sum(left.get(path) == right.get(path) for path in paths) / len(paths)


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from leaves(item, (*path, number))
    else:
        yield path, value


def parsing(output, reference):
    """What people do with text, each a little."""
    del reference
    table = str.maketrans("", "", string.punctuation)
    words = unicodedata.normalize("NFKC", output).translate(table).title().replace("a", "b").split(" ")
    pairs = list(zip(words, itertools.islice(itertools.cycle("xy"), len(words)), strict=False))
    groups = collections.defaultdict(list)
    for word, letter in sorted(pairs, key=lambda pair: (len(pair[0]), pair[1]), reverse=True):
        groups[letter].append(f"{word:>10}|{len(word):.2f}".upper().lower())
    match = re.search(r"(?P<number>-?\d+(?:\.\d+)?)", "about 12.5 of them")
    number = float(match["number"]) if match else 0.0
    try:
        int(output)
    except ValueError:
        number += 1
    moment = datetime.datetime.fromisoformat("2024-02-29T12:30:00+00:00") + datetime.timedelta(days=1)
    with decimal.localcontext():  # whose flags nobody will see
        exact = decimal.Decimal("0.1") + decimal.Decimal(str(number)) + fractions.Fraction(1, 4).numerator
    digest = hashlib.sha256(output.encode("utf-8")).hexdigest()
    shown = textwrap.shorten(" ".join(itertools.chain.from_iterable(groups.values())), 40, placeholder="...")
    found = dataclasses.replace(Found(shown), score=round(math.log1p(abs(float(exact))), 3))
    spread = statistics.pstdev([1.0, 2.0, number]) if any(map(str.isalpha, words)) else 0.0
    drawn = random.Random(1).choice([1, 2, 3]) + random.Random(2).random()
    return found.score + spread + drawn + moment.year + int(digest[:4], 16) + len(re.sub(r"\s+", " ", shown))


COMPARISONS = (same, contains, cosine, overlap, ratio, distance, documents, parsing)
