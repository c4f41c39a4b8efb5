"""The benchmarks measure what they say: their evaluators score right everywhere, and their report has its shape."""

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.__main__ import drawn
from benchmarks.cases import CASES, SIMILARITY, SIMILARITY_BATCH
from benchmarks.containers import BARS, Timed, containers, named
from benchmarks.designs import Design, Measured, bare, best_of_rounds
from benchmarks.engines import NoEngine
from benchmarks.parts import PEER, Bench
from benchmarks.plain import Plain
from benchmarks.report import Bar, Measurement

ROOT = Path(__file__).parent.parent
LATEST = ROOT / "benchmarks" / "latest.json"
FIELDS = ["name", "value", "unit", "baseline", "ratio"]
DESIGNS = ["bare_cpython", "shared_state", "fresh_state", PEER]
SVG = "{http://www.w3.org/2000/svg}"

SCORES = {
    "exact_match": [0.0, 0.0, 0.0, 0.0, 1.0],
    "json_distance": [0.0, 0.0125, 0.0375, 0.025, 0.0125],
    "sequence_ratio": [0.61, 0.942, 0.85, 0.926, 0.134],
    "token_cosine": [
        0.9593203658864466,
        0.9569321102069627,
        0.9569321102069627,
        0.9683759683764526,
        0.9472514803229493,
    ],
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_evaluator_gives_known_scores_with_and_without_a_wall(case, score):
    rows = case.rows()[:5]
    evaluate = case.load()
    assert [evaluate(**row) for row in rows] == SCORES[case.name]
    assert [record.score for record in score(case.path.read_text(), rows).records] == SCORES[case.name]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rows_are_the_same_every_time_and_not_all_alike(case):
    assert list(case.lines(450)) == list(case.lines(450))
    assert len(set(bare(case, 50).scores)) > 1


def test_a_design_that_does_other_work_is_found_out():
    def wrong(case, count):
        return Measured(1.0, [0.5] * count)

    with pytest.raises(RuntimeError, match="wrong gave 0.5 on row 0 of exact_match, where bare gave"):
        best_of_rounds([Design("wrong", 3, wrong)], CASES[0], rounds=1, seconds=0.001, tell=print)


def test_the_best_round_counts_and_the_first_does_not():
    rates = iter([99.0, 10.0, 30.0, 20.0])

    def design(case, count):
        return Measured(next(rates), bare(case, count).scores)

    ways = [Design("mine", 3, design)]
    assert best_of_rounds(ways, CASES[0], rounds=3, seconds=0.1, tell=print) == {"mine": 30.0}


def measurements(designs=DESIGNS):
    return [
        Measurement(f"rows_per_second/{case.name}/{design}", 10.0 ** (6 - n) / 7, "rows/s", _baseline(case, design))
        for case in CASES
        for n, design in enumerate(designs)
    ]


def _baseline(case, design):
    return None if design == PEER else f"rows_per_second/{case.name}/{PEER}"


def test_a_report_has_the_documented_fields(tmp_path):
    report.write(tmp_path / "latest.json", measurements())
    entries = json.loads((tmp_path / "latest.json").read_text())
    assert [list(entry) for entry in entries] == [FIELDS] * 16
    assert entries[2] == {
        "name": "rows_per_second/exact_match/fresh_state",
        "value": 1429.0,
        "unit": "rows/s",
        "baseline": "rows_per_second/exact_match/fresh_interpreter",
        "ratio": 10.0,
    }
    assert entries[3]["baseline"] is None
    assert entries[3]["ratio"] is None


def test_a_ratio_is_null_where_the_baseline_could_not_be_measured():
    assert {entry["ratio"] for entry in report.entries(measurements(DESIGNS[:3]))} == {None}
    assert "fresh_state" in report.table(measurements(DESIGNS[:3]))


def test_the_latest_report_has_the_documented_shape():
    entries = json.loads(LATEST.read_text())
    names = [entry["name"] for entry in entries]
    assert len(set(names)) == len(names)
    for entry in entries:
        assert list(entry) == FIELDS
        assert entry["value"] > 0
        assert entry["unit"] in {"rows/s", "s", "MB", "mappings"}
        assert (entry["ratio"] is not None) == (entry["baseline"] in names)


def test_the_documentation_names_every_field_and_design():
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert set(FIELDS + DESIGNS) <= set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


def test_a_chart_shows_every_number_and_escapes_its_words():
    root = ET.fromstring(drawn(measurements(), "on <this> & that"))
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert "on <this> & that" in texts
    assert all(case.title in texts for case in CASES)
    assert sum(bar.get("fill") is not None for bar in root.iter(f"{SVG}rect")) == 16 + 4
    assert [text for text in texts if text.startswith("143,000")] == ["143,000"] * 4
    assert texts.count("1,43010" + "\N{MULTIPLICATION SIGN}") == 4


def test_a_chart_without_the_peer_leaves_it_and_its_ratios_out():
    drawing = drawn(measurements(DESIGNS[:3]), "")
    assert "Fresh interpreter per row" not in drawing
    assert drawing.count("\N{MULTIPLICATION SIGN}") == 0


@pytest.mark.parametrize("most", [1.0, 9.99, 1000.0, 999_999.0], ids=str)
def test_nothing_of_a_chart_lies_outside_it(most):
    found = [Measurement(f"rows_per_second/{case.name}/fresh_state", most, "rows/s") for case in CASES]
    root = ET.fromstring(drawn(found, ""))
    for bar in root.iter(f"{SVG}rect"):
        end = float(bar.get("x", 0)) + float(bar.get("width"))
        assert float(bar.get("width")) > 0
        assert end <= float(root.get("width"))


@pytest.mark.parametrize(
    ("unit", "value", "line"),
    [
        pytest.param("rows/s", 4_000.0, "at least 3,500: met", id="fast-enough"),
        pytest.param("rows/s", 3_000.0, "at least 3,500: missed", id="too-slow"),
        pytest.param("s", 3_000.0, "at most 3,500: met", id="soon-enough"),
        pytest.param("s", 4_000.0, "at most 3,500: missed", id="too-late"),
    ],
)
def test_a_bar_stands_beside_its_number_alone(unit, value, line):
    found = [Measurement("a/held", value, unit), Measurement("a/free", value, unit)]
    held, free = report.table(found, [Bar("a/held", 3_500)]).splitlines()
    assert held.endswith(line)
    assert "at " not in free


def test_a_bar_that_even_the_baseline_misses_is_said_to_be_out_of_reach():
    found = [Measurement("a/bare", 600.0, "rows/s"), Measurement("a/walled", 500.0, "rows/s", "a/bare")]
    (sentence,) = report.out_of_reach(found, [Bar("a/walled", 3_500)])
    assert sentence.startswith("a/bare itself is 600 rows/s, with no wall at all")
    assert "the bar of 3,500 rows/s for a/walled is out of reach" in sentence
    assert report.out_of_reach(found, [Bar("a/walled", 550), Bar("a/unmeasured", 9_999)]) == []


def test_what_is_measured_in_containers_is_read_against_bare_cpython():
    best = {"row_by_row/bare_cpython": 600.0, "row_by_row/shared_state": 300.0, "batched/fresh_state": 60.0}
    assert [tuple(entry.values())[::2] for entry in report.entries(named("mine", best))] == [
        ("containers/row_by_row/mine/bare_cpython", "rows/s", None),
        ("containers/row_by_row/mine/shared_state", "rows/s", 0.5),
        ("containers/batched/mine/fresh_state", "rows/s", 0.1),
    ]


def test_rows_that_were_not_run_take_as_long_as_those_of_the_second_half():
    timed = Timed(first=2.0, middle=5.0, last=6.0, end=7.0, scores=[0.0] * 100)
    assert timed.scaled(100) == 7.0
    assert timed.scaled(1_000) == pytest.approx(7.0 + 900 * 1.0 / 50)


def test_without_an_engine_containers_are_left_out_with_a_sentence(tmp_path, monkeypatch):
    def ground(*_arguments):
        raise NoEngine("None answers. Start Docker.")

    told = []
    monkeypatch.setattr("benchmarks.containers.own_ground", ground)
    monkeypatch.setattr("benchmarks.containers.sys.platform", "linux")
    assert containers(Bench(tmp_path, told.append)) == []
    assert told == ["Going on without containers: None answers. Start Docker."]


@pytest.mark.parametrize("forked", [False, True], ids=["in-one-process", "a-fork-each"])
def test_a_plain_process_gives_the_scores_of_bare_cpython(tmp_path, forked):
    with Plain(CASES[0].path, tmp_path) as process:
        process.ask(list(CASES[0].lines(20)), forked=forked)
        seconds, scores = process.answer()
    assert scores == bare(CASES[0], 20).scores
    assert seconds > 0


@pytest.mark.parametrize("case", [SIMILARITY, SIMILARITY_BATCH], ids=lambda case: case.name)
def test_the_evaluators_for_containers_score_the_same_rows(case):
    assert case.path.is_file()
    assert [row.keys() for row in case.rows()] == [{"output", "reference"}] * 200


def test_the_documentation_names_what_is_measured_in_containers():
    page = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    for name in ("first_score", "all_rows", "row_by_row", "batched"):
        assert f"| `containers/{name}/" in page
    assert {bar.name.split("/")[1] for bar in BARS} <= {"first_score", "all_rows", "batched"}
