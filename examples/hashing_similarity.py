# /// script
# requires-python = ">=3.11"
# dependencies = ["scikit-learn"]
#
# [tool.evalcell]
# output = {range = [0.0, 1.0], direction = "maximize", threshold = 0.5}
# ///
"""How many words two texts share, as the cosine of their hashed word counts: 1 for the same words, 0 for none.

It compares words, not meanings: a paraphrase with other words scores low. Nothing is fitted, so a score depends on
its own row alone.
"""

from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.metrics.pairwise import cosine_similarity

WORDS = HashingVectorizer(n_features=2**18, analyzer="word", norm="l2", alternate_sign=False)


def evaluate(output, reference):
    if not output or not reference:
        return {"label": "missing", "score": 0.0, "explanation": "One of the two texts is missing."}
    found, wanted = WORDS.transform([str(output), str(reference)])
    cosine = float(cosine_similarity(found, wanted)[0, 0])
    return {"score": cosine, "explanation": f"Cosine of the word counts: {cosine:.4f}."}
