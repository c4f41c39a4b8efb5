# /// script
# requires-python = ">=3.11"
#
# [tool.evalcell]
# output = {range = [0.0, inf], direction = "minimize", threshold = 0.0}
# ///
"""How many leaves of a JSON document differ from the reference: 0 for a perfect extraction, more for every slip.

Either side may be JSON text or an already decoded value. A leaf that differs counts one, and so does every list
element that only one side has. A key that one side lacks counts as null there.
"""

import json


def differences(found, wanted):
    if isinstance(found, dict) and isinstance(wanted, dict):
        return sum(differences(found.get(key), wanted.get(key)) for key in found.keys() | wanted.keys())
    if isinstance(found, list) and isinstance(wanted, list):
        shared = sum(map(differences, found, wanted))
        return shared + abs(len(found) - len(wanted))
    return int(found != wanted)


def decoded(value):
    return json.loads(value) if isinstance(value, str) else value


def evaluate(output, reference):
    try:
        found, wanted = decoded(output), decoded(reference)
    except (TypeError, ValueError) as problem:
        return {"label": "invalid", "score": None, "explanation": f"Not valid JSON: {problem}"}
    count = differences(found, wanted)
    if count == 0:
        return {"label": "match", "score": 0.0, "explanation": "Every field is as it should be."}
    return {"label": "mismatch", "score": float(count), "explanation": f"{count} field(s) are not as they should be."}
