"""How alike the words of two texts are, whatever their order: the cosine between their counts."""

import math
import re
from collections import Counter

WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")


def evaluate(output, reference):
    found, wanted = (Counter(WORD.findall(text.lower())) for text in (output, reference))
    shared = sum(count * wanted[word] for word, count in found.items())
    lengths = math.sqrt(sum(n * n for n in found.values()) * sum(n * n for n in wanted.values()))
    return shared / lengths if lengths else 0.0
