"""Assets as whoever runs the command meets them."""

import json

import pytest

from evalcell import examples

JUDGE = """# /// script
# [tool.evalcell]
# assets = ["{asset}"]
# ///
WORDS = open("{asset}").read().split()


def evaluate(output):
    return output in WORDS
"""


@pytest.fixture
def judge(write):
    def judge(asset: str = "words.txt"):
        return write("judge.py", JUDGE.format(asset=asset))

    write("words.txt", "alpha beta\n")
    return judge


def records(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_evaluator_reads_what_it_ships(evalcell, judge, rows):
    done = evalcell("run", judge(), "--data", rows([{"output": "alpha"}, {"output": "gamma"}]), "--json")
    assert (done.code, done.json()["scores"]["judge"]["mean"]) == (0, 0.5)


def test_another_content_is_another_version(evalcell, judge, rows, write, tmp_path):
    data, versions = rows([{"output": "alpha"}]), []
    for number, content in enumerate(["alpha", "beta", "alpha"]):
        write("words.txt", content)
        assert evalcell("run", judge(), "--data", data, "--out", f"{number}.jsonl").code == 0
        versions += [record["version"] for record in records(tmp_path / f"{number}.jsonl")]
    assert versions[0] == versions[2] != versions[1]


def test_a_missing_asset_is_said_with_the_one_that_was_meant(evalcell, judge):
    done = evalcell("check", judge("wrods.txt"))
    assert done.code == 2
    assert "There is no asset 'wrods.txt' beside the evaluator" in done.err
    assert "Did you mean 'words.txt'?" in done.err
    assert json.loads(evalcell("check", judge("wrods.txt"), "--json").out)["error"]["kind"] == "asset"


def test_too_large_an_asset_names_the_flag_that_lets_it_in(evalcell, judge, write):
    write("words.txt", "x" * 2_000)
    done = evalcell("check", judge(), "--limit", "asset_bytes=1000")
    assert done.code == 2
    assert "Raise the limit with --limit asset_bytes=N" in done.err
    assert evalcell("check", judge(), "--limit", "asset_bytes=2000").code == 0


def test_check_lists_assets(evalcell, judge):
    assert "  asset       words.txt  (sha256 " in evalcell("check", judge()).out
    (asset,) = evalcell("check", judge(), "--json").json()["assets"]
    assert (asset["name"], len(asset["sha256"])) == ("words.txt", 64)


def test_in_a_container_they_are_a_layer_that_is_listed_and_removed(evalcell, judge, rows, write, engine_address):
    write("listed.txt", "alpha of this test only\n")
    run = ("run", judge("listed.txt"), "--data", rows([{"output": "alpha"}]), "--sandbox", "container", "--json")
    first, second = evalcell(*run), evalcell(*run)
    assert (first.code, first.json()["scores"]["judge"]["mean"]) == (0, 1.0)
    assert "assets" in first.err or first.err == ""
    assert second.code == 0
    listed = [layer for layer in evalcell("layers", "list", "--json").json() if layer["evaluators"] == ["judge.py"]]
    mine = next(layer for layer in listed if layer["assets"] == ["listed.txt"])
    assert mine["packages"] == []
    assert mine["size_bytes"] < 1_000_000
    assert "assets: listed.txt" in evalcell("layers", "list", env={"COLUMNS": "200"}).out
    assert evalcell("layers", "rm", mine["key"]).code == 0
    assert mine["key"] not in [layer["key"] for layer in evalcell("layers", "list", "--json").json()]
    assert evalcell(*run).code == 0


def test_new_writes_the_assets_of_an_example_too(evalcell, tmp_path):
    assert evalcell("new", "mine", "--from", "jargon").code == 0
    assert (tmp_path / "jargon.txt").exists()


def test_a_vectorizer_gives_the_same_fitted_here_and_shipped_fitted(evalcell, tmp_path, engine_address):
    """The rows that it was fitted on are all the rows of the example."""
    for name in ("tfidf_fitted", "tfidf_pickled"):
        examples.write(name, tmp_path / name, 1_000)
        done = evalcell("run", f"{name}.py", "--data", f"{name}.jsonl", "--out", f"{name}.out.jsonl", seconds=300)
        assert done.code == 0, done.err
    fitted, shipped = (records(tmp_path / f"{name}.out.jsonl") for name in ("tfidf_fitted", "tfidf_pickled"))
    assert [record["score"] for record in fitted] == pytest.approx([record["score"] for record in shipped])
    assert len({record["score"] for record in fitted}) > 5
