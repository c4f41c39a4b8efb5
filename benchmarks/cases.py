"""What is measured: four evaluators as users write them, and rows that are the same in every run."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

from evalcell.evaluator import SUFFIXES
from evalcell_sandboxes import Language, Program

DISTINCT_ROWS = 200
"""So many rows of a case differ; a run that needs more of them starts over."""

_EVALUATORS = Path(__file__).parent / "evaluators"
_EXAMPLES = Path(__file__).parent.parent / "examples"
_PROSE = (
    "the invoice was paid in full on Monday and nobody at our office had asked for it; a customer's order left late "
    "because one carrier lost its label twice, so we refunded shipping, wrote an apology with 20 percent off, and "
    "closed this ticket after she'd answered that everything arrived in good shape"
)
_WORDS = _PROSE.split()


@dataclass(frozen=True)
class Case:
    """One evaluator and how a row for it is made: an output and its reference."""

    name: str
    title: str
    make: Callable[[Random], tuple[str, str]]
    folder: Path = _EVALUATORS
    language: Language = Language.PYTHON

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}{SUFFIXES[self.language]}"

    @property
    def program(self) -> Program:
        return Program(self.path.read_text(encoding="utf-8"), self.path.name, self.language)

    def rows(self) -> list[dict[str, str]]:
        """The distinct rows. Each has a seed of its own, so that a row stays the same whatever comes before it."""
        made = (self.make(Random(f"{self.name} {number}")) for number in range(DISTINCT_ROWS))
        return [{"output": output, "reference": reference} for output, reference in made]

    def lines(self, count: int) -> Iterator[str]:
        """That many rows as lines of JSON."""
        return islice(cycle([json.dumps(row) for row in self.rows()]), count)

    def load(self) -> Callable[[str, str], Any]:
        """The evaluator's function, in this process and behind no wall at all."""
        namespace: dict[str, Any] = {"__name__": self.name}
        exec(compile(self.path.read_text(encoding="utf-8"), str(self.path), "exec"), namespace)
        function: Callable[[str, str], Any] = namespace["evaluate"]
        return function


def _answers(random: Random) -> tuple[str, str]:
    return f"answer {random.randrange(3)}", f"answer {random.randrange(3)}"


def _documents(random: Random) -> tuple[str, str]:
    """An invoice of about 2 KB, and the same with some of its fields misread."""
    reference = {
        "invoice": f"2025-{random.randrange(10_000):04}",
        "customer": {"name": _text(random, 24), "street": _text(random, 24), "city": _text(random, 12)},
        "lines": [_invoice_line(random) for _ in range(15)],
        "paid": random.choice([True, False]),
    }
    output = json.loads(json.dumps(reference))
    for line in random.sample(output["lines"], random.randrange(4)):
        line[random.choice(["quantity", "price"])] = random.randrange(100)
    return json.dumps(output), json.dumps(reference)


def _invoice_line(random: Random) -> dict[str, Any]:
    return {
        "article": f"A-{random.randrange(100_000):05}",
        "description": _text(random, 32),
        "quantity": random.randrange(1, 50),
        "price": random.randrange(100, 100_000) / 100,
        "tax": random.choice([0.07, 0.19]),
    }


def _texts(random: Random) -> tuple[str, str]:
    """500 characters of prose, and the same with every tenth word or so replaced by another."""
    reference = _text(random, 500)
    return _reworded(random, reference)[:500].ljust(500, "."), reference


def _sentences(random: Random) -> tuple[str, str]:
    """The same with 80 characters, as short answers are."""
    reference = _text(random, 80)
    return _reworded(random, reference), reference


def _reworded(random: Random, text: str) -> str:
    return " ".join(word if random.randrange(10) else random.choice(_WORDS) for word in text.split(" "))


def _text(random: Random, characters: int) -> str:
    words = random.choices(_WORDS, k=characters)
    return " ".join(words)[:characters]


CASES = (
    Case("exact_match", "Exact match", _answers),
    Case("json_distance", "JSON distance, documents of 2 KB", _documents),
    Case("sequence_ratio", "difflib ratio, 500 characters", _texts),
    Case("token_cosine", "Word counts and cosine, 500 characters", _texts),
)

EXACT = CASES[0]
SIMILARITY = Case("hashing_similarity", "scikit-learn", _sentences, _EXAMPLES)
SIMILARITY_BATCH = Case("hashing_similarity_batch", "scikit-learn, evaluate_batch", _sentences)
