# /// script
# [tool.evalcell]
# output = {range = [0.0, 1.0], threshold = 1.0}
# assets = ["jargon.txt"]
# ///
"""Whether an answer does without jargon: 1 without any, less with each word of the list in `jargon.txt`.

The list lies beside this file and is shipped with it. Another list makes another version of the evaluator.
"""

import re
from pathlib import Path

LIST = Path(__file__).with_name("jargon.txt").read_text(encoding="utf-8")
WORDS = [line for line in LIST.splitlines() if line and not line.startswith("#")]
JARGON = re.compile("|".join(rf"\b{re.escape(word)}\b" for word in WORDS), re.IGNORECASE)


def evaluate(output):
    found = sorted({word.lower() for word in JARGON.findall(output)})
    return {
        "score": 1 / (1 + len(found)),
        "explanation": f"Jargon: {', '.join(found)}." if found else "No jargon.",
    }
