# /// script
# [tool.evalcell]
# output = {range = [0.0, 1.0], threshold = 0.5}
# ///
"""How much of the reference an answer says, where rare words count more: a name or a number tells more than "the".

How rare a word is, is learnt from the references before any row is scored. The corpus-level number counts long
references for more than short ones, as no mean of the rows' scores does.
"""

import math
import re
from collections import Counter

WEIGHTS = {}


def fit(rows):
    """Inverse document frequencies: a word in every reference weighs 1, a rarer one more."""
    seen = Counter(word for row in rows for word in words(row["reference"]))
    WEIGHTS.update({word: 1 + math.log(len(rows) / count) for word, count in seen.items()})


def evaluate(output, reference):
    said = words(output)
    wanted = {word: WEIGHTS.get(word, max(WEIGHTS.values(), default=1.0)) for word in words(reference)}
    found, total = sum(wanted[word] for word in wanted if word in said), sum(wanted.values())
    missing = sorted((word for word in wanted if word not in said), key=lambda word: (-wanted[word], word))
    return {
        "score": found / total if total else 1.0,
        "explanation": f"Missing: {', '.join(missing[:3])}." if missing else "Nothing is missing.",
        "found": found,
        "total": total,
    }


def aggregate(results):
    total = sum(result["metadata"]["total"] for result in results)
    return {
        "corpus_recall": sum(result["metadata"]["found"] for result in results) / total if total else None,
        "complete": sum(result["score"] == 1 for result in results),
    }


def words(text):
    return set(re.findall(r"\w+", text.lower()))
