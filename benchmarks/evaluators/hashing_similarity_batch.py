# /// script
# requires-python = ">=3.11"
# dependencies = ["scikit-learn"]
#
# [tool.evalcell]
# output = {range = [0.0, 1.0], direction = "maximize", threshold = 0.5}
# ///
"""The cosine of hashed word counts, as in examples/hashing_similarity.py, for many rows in one call."""

from sklearn.feature_extraction.text import HashingVectorizer

WORDS = HashingVectorizer(n_features=2**18, analyzer="word", norm="l2", alternate_sign=False)


def evaluate(output, reference):
    return evaluate_batch([{"output": output, "reference": reference}])[0]


def evaluate_batch(rows):
    found = WORDS.transform([str(row["output"] or "") for row in rows])
    wanted = WORDS.transform([str(row["reference"] or "") for row in rows])
    cosines = found.multiply(wanted).sum(axis=1).ravel().tolist()
    return [_scored(row, cosine) for row, cosine in zip(rows, _flat(cosines), strict=True)]


def _flat(cosines):
    """scipy gives a matrix or an array, by its version."""
    return cosines[0] if isinstance(cosines[0], list) else cosines


def _scored(row, cosine):
    if not row["output"] or not row["reference"]:
        return {"label": "missing", "score": 0.0, "explanation": "One of the two texts is missing."}
    return {"score": cosine, "explanation": f"Cosine of the word counts: {cosine:.4f}."}
