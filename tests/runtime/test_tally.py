import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalcell.tally import OTHER_LABELS, OTHER_NAMES, Moments, Tally, count_label

numbers = st.lists(st.floats(-1e6, 1e6), max_size=30)


def moments(values):
    made = Moments()
    for value in values:
        made.add(value)
    return made


@given(numbers, numbers)
def test_merged_moments_are_those_of_all_values(left, right):
    merged = moments(left)
    merged.merge(moments(right))
    values = left + right
    assert merged.count == len(values)
    if values:
        assert merged.mean == pytest.approx(statistics.fmean(values), rel=1e-9, abs=1e-6)
        assert (merged.least, merged.most) == (min(values), max(values))
    if len(values) > 1:
        expected = statistics.stdev(values) / math.sqrt(len(values))
        assert merged.stderr == pytest.approx(expected, rel=1e-6, abs=1e-6)
    else:
        assert merged.stderr is None


def test_one_huge_score_is_as_good_as_another():
    moments = Moments()
    moments.merge(Moments.of([1e300, 1e300]))
    assert (moments.mean, moments.stderr) == (1e300, 0.0)


def test_tallies_add_up():
    left, right = Tally(rows=2, failures={"raised": 1}), Tally(rows=3, failures={"raised": 1, "crashed": 1})
    left.summary("a").scored = 1
    right.summary("a").scored = 2
    left.merge(right)
    assert (left.rows, left.failed, left.names["a"].scored) == (5, 3, 3)


def test_names_and_labels_from_the_guest_cannot_fill_memory():
    tally = Tally()
    labels: dict[str, int] = {}
    for number in range(1000):
        tally.summary(f"name {number}").scored += 1
        count_label(labels, f"label {number}")
    assert len(tally.names) <= 101
    assert tally.names[OTHER_NAMES].scored > 800
    assert len(labels) <= 51
    assert sum(labels.values()) == 1000
    assert labels[OTHER_LABELS] > 900
    count_label(labels := {}, "x" * 10**6)
    assert len(next(iter(labels))) <= 200
    assert tally.summary("y" * 10**6) is tally.names[OTHER_NAMES]
