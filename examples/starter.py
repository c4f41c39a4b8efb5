# /// script
# [tool.evalcell]
# # What a score means. Delete this block, and any finite number is a score.
# output = {range = [0.0, 1.0], direction = "maximize", threshold = 0.8}
# ///
"""How many of the reference's words the output has: 1 for all of them, 0 for none."""

import re

# Whatever stands here runs once. Every row starts from the state after it: nothing a row does reaches the next one.
WORD = re.compile(r"\w+")


def words(text):
    return set(WORD.findall(text.lower()))


def evaluate(output, reference):
    """Called for every row. Each parameter takes the row's field of its name; --bind says otherwise."""
    wanted = words(reference)
    if not wanted:
        # None is for a row that cannot be scored. It is skipped, which is not the same as 0.0.
        return {"score": None, "explanation": "The reference has no words."}
    missing = wanted - words(output)
    # A number, True, False or a label alone would do. More is kept with the score.
    return {
        "score": 1 - len(missing) / len(wanted),
        "explanation": f"Missing: {', '.join(sorted(missing))}" if missing else "Every word is there.",
    }
