# /// script
# [tool.evalcell]
# bind = {called = "output.tool_calls[*].name", expected = "reference.tools"}
# ///
"""Whether an agent called the tools it should have: precision, recall and order, as three named scores."""

from collections import Counter


def evaluate(called, expected):
    right = sum((Counter(called) & Counter(expected)).values())
    return {
        "precision": right / len(called) if called else float(not expected),
        "recall": right / len(expected) if expected else 1.0,
        "in_order": [tool for tool in called if tool in expected] == expected,
    }
