# /// script
# requires-python = ">=3.11"
# dependencies = ["scikit-learn==1.9.1"]
#
# [tool.evalcell]
# output = {range = [0.0, 1.0], threshold = 0.3}
# assets = ["tfidf_vectorizer.pkl"]
# ///
"""How many of its words an answer shares with the reference, as `tfidf_fitted.py` has it, but nothing is learnt here.

The vectorizer was fitted beforehand, on the references of `support_answers.jsonl`, and is shipped as a pickle:

    references = [json.loads(line)["reference"] for line in open("support_answers.jsonl")]
    vectorizer = TfidfVectorizer(sublinear_tf=True).fit(references)
    pickle.dump(vectorizer, open("tfidf_vectorizer.pkl", "wb"))

A pickle fits the version of scikit-learn that wrote it, so that is the one that is asked for. It is unpickled in the
sandbox, and never on the machine around it.
"""

import pickle
from pathlib import Path

WORDS = pickle.loads(Path(__file__).with_name("tfidf_vectorizer.pkl").read_bytes())


def evaluate(output, reference):
    found, wanted = WORDS.transform([output, reference])
    return float((found @ wanted.T).sum())
