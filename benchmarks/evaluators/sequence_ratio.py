"""How alike two texts are, character by character: 1 for the same text."""

from difflib import SequenceMatcher


def evaluate(output, reference):
    return SequenceMatcher(None, output, reference).ratio()
