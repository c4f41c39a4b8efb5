# /// script
# requires-python = ">=3.11"
# dependencies = ["scikit-learn"]
#
# [tool.evalcell]
# output = {range = [0.0, 1.0], threshold = 0.3}
# ///
"""How many of its words an answer shares with the reference, where rare words count more: cosine of TF-IDF vectors.

How rare a word is, is learnt from the references of the dataset, before any row is scored. `tfidf_pickled.py` does the
same with a vectorizer that was fitted beforehand.
"""

from sklearn.feature_extraction.text import TfidfVectorizer

WORDS = TfidfVectorizer(sublinear_tf=True)


def fit(rows):
    WORDS.fit(row["reference"] for row in rows)


def evaluate(output, reference):
    found, wanted = WORDS.transform([output, reference])
    return float((found @ wanted.T).sum())
