import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalcell.output import Output
from evalcell.scoring import InvalidResult, Score, scores_of

FREEFORM = Output()
UNIT = Output(kind="continuous", low=0.0, high=1.0, threshold=0.5)
DISTANCE = Output(kind="continuous", low=0.0, high=math.inf, direction="minimize", threshold=0.0)
VERDICT = Output(kind="categorical", labels={"good": 1.0, "bad": 0.0, "odd": None})


def one(value, output=FREEFORM) -> Score:
    (score,) = scores_of(value, output)
    return score


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(0.25, Score(score=0.25), id="number"),
        pytest.param(3, Score(score=3.0), id="integer"),
        pytest.param(True, Score(score=1.0, passed=True), id="true"),
        pytest.param(False, Score(score=0.0, passed=False), id="false"),
        pytest.param("good", Score(label="good"), id="label"),
        pytest.param(
            {"score": 1, "label": "a", "explanation": "b"}, Score(score=1.0, label="a", explanation="b"), id="dict"
        ),
        pytest.param({"score": None, "label": "invalid"}, Score(label="invalid", skipped=True), id="skipped"),
        pytest.param({"label": "x"}, Score(label="x"), id="label-only"),
        pytest.param(
            {"pass": True, "score": 0.9, "reason": "r"}, Score(score=0.9, passed=True, explanation="r"), id="promptfoo"
        ),
        pytest.param({"pass_": False, "reason": "r"}, Score(score=0.0, passed=False, explanation="r"), id="pass-alone"),
        pytest.param({"key": "k", "score": 1, "comment": "c"}, Score("k", 1.0, explanation="c"), id="langsmith"),
        pytest.param({"key": "k", "value": "v"}, Score("k", label="v"), id="langsmith-value"),
        pytest.param(
            {"name": "n", "score": 0.5, "metadata": {"a": 1}}, Score("n", 0.5, metadata={"a": 1}), id="braintrust"
        ),
        pytest.param({"value": 2, "rationale": "r"}, Score(score=2.0, explanation="r"), id="mlflow"),
        pytest.param({"value": True}, Score(score=1.0, passed=True), id="value-bool"),
        pytest.param({"value": None}, Score(skipped=True), id="value-none"),
        pytest.param({"score": 1, "answer": "A"}, Score(score=1.0, metadata={"answer": "A"}), id="inspect-extra-kept"),
        pytest.param(
            {"name": "n", "score": 1, "success": True, "reason": None}, Score("n", 1.0, passed=True), id="eval-lib"
        ),
        pytest.param({"score": True}, Score(score=1.0, passed=True), id="score-bool"),
        pytest.param(
            {"score": 1, "value": 2, "scores": [3]},
            Score(score=1.0, metadata={"value": 2, "scores": [3]}),
            id="nothing-lost",
        ),
    ],
)
def test_what_people_write_is_understood(value, expected):
    assert one(value) == expected


def test_named_scores_come_as_lists_dicts_and_wrapped():
    expected = {"precision": 0.5, "recall": 1.0}
    for value in (
        [{"name": "precision", "score": 0.5}, {"key": "recall", "value": 1}],
        {"precision": {"score": 0.5}, "recall": {"value": 1}},
        {"precision": 0.5, "recall": True},
        {"scores": [{"name": "precision", "value": 0.5}, {"name": "recall", "value": 1}]},
        {"namedScores": expected},
    ):
        assert {score.name: score.score for score in scores_of(value, FREEFORM)} == expected
    for names in (("f1_score", "bleu_score"), ("score_a",), ("score1", "score2"), ("rouge_1_score", "em")):
        assert [score.name for score in scores_of(dict.fromkeys(names, 0.5), FREEFORM)] == list(names)
    both = scores_of({"score": 1, "namedScores": {"tone": 0.5}}, FREEFORM)
    assert [(score.name, score.score) for score in both] == [(None, 1.0), ("tone", 0.5)]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param(None, "did you forget return", id="none"),
        pytest.param([], "empty list", id="empty-list"),
        pytest.param({}, "no keys", id="empty-dict"),
        pytest.param([1, 2], "item 0", id="list-of-numbers"),
        pytest.param({"score": "0.5"}, "score must be a number, but it is '0.5'", id="text-score"),
        pytest.param({"score": [1]}, "must be a number", id="list-score"),
        pytest.param({"score": 1, "label": 3}, "label must be text", id="number-label"),
        pytest.param({"score": 1, "explanation": {"a": 1}}, "explanation must be text", id="dict-explanation"),
        pytest.param({"score": 1, "passed": "yes"}, "passed must be true or false", id="text-passed"),
        pytest.param({"score": 1, "metadata": []}, "metadata must be an object", id="list-metadata"),
        pytest.param({"namedScores": True}, "namedScores must be an object", id="named-bool"),
        pytest.param({"namedScores": {}}, "without score", id="named-empty"),
        pytest.param({"f1": {}}, "nothing in it", id="empty-named"),
        pytest.param({"label": None}, "nothing in it", id="null-label"),
        pytest.param([{"name": str(n), "score": 1} for n in range(101)], "101 scores; 100 are allowed", id="many"),
        pytest.param(
            {"scores": [{"name": "x", "scores": [{"name": str(n), "score": 1} for n in range(60)]}] * 2},
            "120 scores",
            id="nested",
        ),
        pytest.param({"namedScores": {"a": [{"name": "x", "score": 1}]}}, "is a list", id="named-list"),
        pytest.param({"scroe": 0.5}, "Did you mean 'score'", id="slip"),
        pytest.param({"explanation": "x"}, "without score", id="explanation-only"),
        pytest.param({"tone": "warm"}, "without score", id="dict-of-text"),
        pytest.param([{"score": 1}, {"score": 2}], "without a 'name'", id="unnamed"),
        pytest.param([{"name": "a", "score": 1}, {"name": "a", "score": 2}], "two scores named 'a'", id="twice"),
        pytest.param(10**400, "too large", id="huge-integer"),
        pytest.param({"score": float("nan")}, "finite", id="nan"),
    ],
)
def test_what_is_no_score_is_refused_by_name(value, message):
    with pytest.raises(InvalidResult, match=message):
        scores_of(value, FREEFORM)


def test_a_score_within_rounding_of_its_range_is_moved_onto_it():
    assert one(1.0 + 1e-12, UNIT).score == 1.0
    assert one(-1e-12, UNIT).score == 0.0


@pytest.mark.parametrize("value", [1.001, -0.1, {"score": 2}])
def test_a_score_outside_its_range_is_refused(value):
    with pytest.raises(InvalidResult, match="outside its range 0..1"):
        scores_of(value, UNIT)


def test_the_threshold_decides_what_passes_in_the_direction_of_the_score():
    assert [one(value, UNIT).passed for value in (0.4, 0.5, 0.6)] == [False, True, True]
    assert [one(value, DISTANCE).passed for value in (0, 1)] == [True, False]
    assert one({"score": 0.6, "passed": False}, UNIT).passed is True
    assert one({"score": 0.6, "passed": False}).passed is False


def test_a_continuous_output_needs_a_number():
    with pytest.raises(InvalidResult, match="only the label"):
        scores_of("good", UNIT)
    assert one({"score": None, "label": "n/a"}, UNIT).skipped


def test_a_category_has_the_score_of_its_label():
    assert one("good", VERDICT).score == 1.0
    assert one({"label": "odd", "score": 0.3}, VERDICT).score == 0.3
    assert one("odd", VERDICT).score is None
    for value, message in [
        ("best", "not one of 'good', 'bad', 'odd'"),
        (1.0, "a label was expected"),
        ({"label": "bad", "score": 1}, "scores 0"),
    ]:
        with pytest.raises(InvalidResult, match=message):
            scores_of(value, VERDICT)


def test_a_score_without_a_name_has_the_evaluators_and_none_may_share_it():
    with pytest.raises(InvalidResult, match="two scores named 'mine'"):
        scores_of({"score": 1, "namedScores": {"mine": 0}}, FREEFORM, "mine")
    assert len(scores_of({"score": 1, "namedScores": {"other": 0}}, FREEFORM, "mine")) == 2


def test_nothing_that_was_returned_is_lost():
    assert one({"label": "x", "scores": {"a": 1}, "value": "kept"}).metadata == {"scores": {"a": 1}, "value": "kept"}
    assert one({"score": 1, "explanation": "a", "reason": "b"}).metadata == {"reason": "b"}


def test_failed_skipped_and_zero_stay_distinct():
    zero, skipped = one(0.0), one({"score": None})
    assert (zero.score, zero.skipped) == (0.0, False)
    assert (skipped.score, skipped.skipped) == (None, True)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["score", "label", "name", "passed", "value", "metadata", "scores", "namedScores", "x"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)


@settings(max_examples=500, deadline=None)
@given(anything, st.sampled_from([FREEFORM, UNIT, DISTANCE, VERDICT]))
def test_whatever_comes_back_is_valid_or_refused(value, output):
    try:
        scores = scores_of(value, output)
    except InvalidResult as error:
        assert str(error)
        return
    assert scores
    for score in scores:
        assert score.score is None or (type(score.score) is float and math.isfinite(score.score))
        assert score.label is None or type(score.label) is str
        assert score.passed is None or type(score.passed) is bool
        assert score.metadata is None or type(score.metadata) is dict
        if output is UNIT and not score.skipped:
            assert 0 <= score.score <= 1
            assert score.passed is not None
        if output is VERDICT and not score.skipped:
            assert score.label in VERDICT.labels
    assert len({score.name for score in scores}) == len(scores)
