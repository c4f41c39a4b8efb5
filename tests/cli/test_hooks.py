"""`fit` and `aggregate` as a person sees them: on the screen, in `--json`, in `check`, in exit codes."""

import json
import signal
import subprocess
import sys
import time

import pytest

SOURCE = """seen = []
def fit(rows):
    seen.extend(row["output"] for row in rows)
def evaluate(output):
    return {"score": output, "label": str(seen)}
def aggregate(results):
    return {"rows": len(results), "mean": sum(r["score"] for r in results) / len(results), "undefined": None}
"""


def numbers(count):
    return "".join(json.dumps({"output": n}) + "\n" for n in range(count))


def labels(path):
    return [json.loads(line)["label"] for line in path.read_text().splitlines()]


def test_a_run_says_what_it_fits_on_and_shows_the_aggregates(evalcell, write, rows):
    done = evalcell("run", write("e.py", SOURCE), "--data", rows([{"output": 1}, {"output": 4}]))
    assert done.code == 0, done.err
    assert "Fitting on the first 2 rows ..." in done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert ["aggregate", "value"] in lines
    assert ["rows", "2"] in lines
    assert ["mean", "2.5"] in lines
    assert ["undefined", "-"] in lines


def test_the_aggregates_are_in_the_json(evalcell, write, rows):
    summary = evalcell("run", write("e.py", SOURCE), "--data", rows([{"output": 1}, {"output": 4}]), "--json").json()
    assert summary["aggregates"] == {"rows": 2, "mean": 2.5, "undefined": None}
    assert summary["aggregate_error"] is None


def test_standard_input_is_fitted_on_and_scored(evalcell, write, tmp_path):
    out = tmp_path / "o.jsonl"
    evaluator = write("e.py", SOURCE)
    done = evalcell("run", evaluator, "--data", "-", "--fit-rows", 3, "--out", out, "--json", stdin=numbers(10))
    assert done.code == 0, done.err
    assert done.json()["aggregates"]["rows"] == 10
    assert labels(out) == ["[0, 1, 2]"] * 10


def test_rows_that_come_slowly_through_a_pipe_are_waited_for_and_scored_as_they_come(write, tmp_path):
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "evalcell",
            "run",
            write("e.py", SOURCE),
            "--data",
            "-",
            "--fit-rows",
            "2",
            "--out",
            "-",
        ],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        process.stdin.write('{"output": 0}\n')
        process.stdin.flush()
        waiting = process.stderr.readline()
        process.stdin.write('{"output": 1}\n')
        process.stdin.flush()
        first = json.loads(process.stdout.readline())  # and the pipe is still open
        process.stdin.write('{"output": 2}\n')
        process.stdin.close()
        out, err = process.stdout.read(), process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
    assert first["label"] == "[0, 1]"
    assert [json.loads(line)["label"] for line in out.splitlines()] == ["[0, 1]"] * 2
    assert waiting == "Reading 2 rows to fit on ...\n"
    assert "Fitting on the first 2 rows ..." in err


def test_how_many_rows_are_scored_makes_no_difference_to_what_is_fitted_on(evalcell, write, rows, tmp_path):
    out = tmp_path / "o.jsonl"
    data = rows([{"output": n} for n in range(5)])
    assert evalcell("run", write("e.py", SOURCE), "--data", data, "--rows", 1, "--fit-rows", 3, "--out", out).code == 0
    assert labels(out) == ["[0, 1, 2]"]
    assert evalcell("run", write("e.py", SOURCE), "--data", data, "--rows", 2, "--out", out).code == 0
    assert labels(out) == ["[0, 1, 2, 3, 4]"] * 2


def test_a_failing_fit_is_an_error_of_the_file_with_its_traceback(evalcell, write, rows, tmp_path):
    evaluator = write(
        "e.py", "def fit(rows):\n    raise ValueError('no words\x1b[2J')\ndef evaluate(output): return 1\n"
    )
    data = rows([{"output": 1}])
    done = evalcell("run", evaluator, "--data", data, "--out", tmp_path / "o.jsonl")
    assert done.code == 2
    assert "fit failed on the first row: ValueError: no words" in done.err
    assert "line 2, in fit" in done.err
    assert "\x1b[2J" not in done.err
    assert not (tmp_path / "o.jsonl").exists()
    assert evalcell("run", evaluator, "--data", data, "--json").json()["error"]["kind"] == "raised"


def test_a_fit_that_is_too_slow_says_what_to_raise(evalcell, write, rows):
    evaluator = write("e.py", "def fit(rows):\n    while True: pass\ndef evaluate(output): return 1\n")
    done = evalcell("run", evaluator, "--data", rows([{"output": 1}]), "--limit", "fit_seconds=0.5")
    assert done.code == 2
    assert "--limit fit_seconds=N" in done.err


def test_fit_rows_for_a_file_without_fit_are_a_mistake(evalcell, write, rows):
    done = evalcell(
        "run", write("e.py", "def evaluate(output): return 1\n"), "--data", rows([{"output": 1}]), "--fit-rows", 5
    )
    assert done.code == 2
    assert "e.py defines no fit" in done.err


@pytest.mark.parametrize(("flags", "code"), [((), 1), (("--allow-failures",), 0)])
def test_a_failing_aggregate_is_reported_and_decides_the_exit_code(evalcell, write, rows, tmp_path, flags, code):
    source = "def evaluate(output): return 1\ndef aggregate(results):\n    raise ValueError('no\x1b[2Jmean')\n"
    arguments = (
        "run",
        write("e.py", source),
        "--data",
        rows([{"output": 1}] * 3),
        "--out",
        tmp_path / "o.jsonl",
        *flags,
    )
    done = evalcell(*arguments)
    assert done.code == code, done.err
    assert "aggregate failed: raised: ValueError: no" in done.out
    assert "line 3, in aggregate" in done.out
    assert "\x1b[2J" not in done.out
    assert len((tmp_path / "o.jsonl").read_text().splitlines()) == 3
    done = evalcell(*arguments, "--json")
    assert done.code == code
    assert done.json()["aggregates"] == {}
    assert done.json()["aggregate_error"]["kind"] == "raised"
    assert (done.json()["rows"], done.json()["failed"]) == (3, 0)


def test_names_of_aggregates_are_printed_so_that_they_command_nothing(evalcell, write, rows):
    source = "def evaluate(output): return 1\ndef aggregate(results):\n    return {'\\x1b[2J[red]x': 1}\n"
    done = evalcell("run", write("e.py", source), "--data", rows([{"output": 1}]))
    assert done.code == 0
    assert "\\x1b[2J[red]x" in done.out
    assert "\x1b" not in done.out


def test_a_run_in_which_nothing_was_scored_says_that_aggregate_was_not_called(evalcell, write, rows):
    source = "def evaluate(output): return {'score': None}\ndef aggregate(results):\n    raise ValueError('called')\n"
    done = evalcell("run", write("e.py", source), "--data", rows([{"output": 1}]))
    assert done.code == 0
    assert "aggregate was not called: no row has a score." in done.out


def test_check_says_which_hooks_are_called_and_with_what(evalcell, write):
    evaluator = write("e.py", SOURCE + "def evaluate_batch(rows): pass\n")
    done = evalcell("check", evaluator, "--fit-rows", 50)
    assert done.code == 0, done.err
    assert "hook        fit (line 2): called before the rows, with the first 50" in done.out
    assert "hook        aggregate (line 6): called after the rows, with every score" in done.out
    assert "hook        evaluate_batch (line 8): not called" in done.out
    assert "fit_rows                  50  (flag)" in done.out
    report = evalcell("check", evaluator, "--json").json()
    assert report["settings"]["fit_rows"] == {"value": 10_000, "source": "default"}
    assert [(hook["name"], bool(hook["called"])) for hook in report["hooks"]] == [
        ("fit", True),
        ("aggregate", True),
        ("evaluate_batch", False),
    ]


def test_check_says_nothing_of_fit_rows_where_there_is_no_fit(evalcell, write):
    assert "fit_rows" not in evalcell("check", write("e.py", "def evaluate(output): return 1\n")).out


def test_check_tries_rows_as_a_run_would_fit_them(evalcell, write, rows):
    data = rows([{"output": n} for n in range(5)])
    tries = evalcell("check", write("e.py", SOURCE), "--data", data, "--rows", 2, "--fit-rows", 4, "--json").json()[
        "tries"
    ]
    assert [item["records"][0]["label"] for item in tries] == ["[0, 1, 2, 3]"] * 2


def test_the_help_of_run_names_the_hooks(evalcell):
    done = evalcell("run", "--help")
    assert "fit(rows)" in done.out
    assert "aggregate(results)" in done.out
    assert "--fit-rows" in done.out


@pytest.mark.parametrize("source", [SOURCE, "def evaluate(output): return 1\n"])
def test_check_says_that_a_dataset_is_empty(evalcell, write, rows, source):
    done = evalcell("check", write("e.py", source), "--data", rows([]))
    assert done.code == 2
    assert done.err == "error: The dataset has no rows.\n"


def test_the_json_of_a_failed_load_or_fit_has_its_traceback_and_prints(evalcell, write, rows):
    data = rows([{"output": 1}])
    failing = "    print('seen', len(rows))\n    raise ValueError('no words')\n"
    fit = write("e.py", "def fit(rows):\n" + failing + "def evaluate(output): return 1\n")
    error = evalcell("run", fit, "--data", data, "--json").json()["error"]
    assert error["kind"] == "raised"
    assert "line 3, in fit" in error["traceback"]
    assert error["stdout"] == "seen 1\n"
    load = write("e.py", "1 / 0\ndef evaluate(output): return 1\n")
    error = evalcell("run", load, "--data", data, "--json").json()["error"]
    assert "ZeroDivisionError" in error["traceback"]
    assert "stdout" not in error


def test_what_a_failing_fit_printed_stands_below_its_traceback(evalcell, write, rows):
    source = """import sys
def fit(rows):
    print('looked at\x1b[2J', len(rows))
    print('x' * 9_000, file=sys.stderr)
    raise ValueError('no words')
def evaluate(output): return 1
"""
    done = evalcell("run", write("e.py", source), "--data", rows([{"output": 1}]))
    assert done.code == 2
    _, below = done.err.split("ValueError: no words\nstdout: ")
    assert below.startswith("looked at\\x1b[2J 1")
    assert "stderr: xxx" in below
    assert len(below) < 1_000


def test_what_a_failing_aggregate_printed_stands_below_its_traceback(evalcell, write, rows):
    source = """def evaluate(output): return 1
def aggregate(results):
    print('looked [red]at\x1b[2J', len(results))
    raise ValueError('no mean')
"""
    arguments = ("run", write("e.py", source), "--data", rows([{"output": 1}]))
    done = evalcell(*arguments)
    assert "ValueError: no mean\nstdout: looked [red]at\\x1b[2J 1" in done.out
    assert "Aggregating 1 score ..." in done.err
    error = evalcell(*arguments, "--json").json()["aggregate_error"]
    assert (error["stdout"], error["stderr"]) == ("looked [red]at\x1b[2J 1\n", "")


def test_an_aggregate_without_numbers_is_said_to_have_none(evalcell, write, rows):
    source = "def evaluate(output): return 1\ndef aggregate(results): return {}\n"
    done = evalcell("run", write("e.py", source), "--data", rows([{"output": 1}]))
    assert done.code == 0
    assert "aggregate returned no numbers." in done.out


def test_an_interrupt_while_it_aggregates_says_where_the_records_are(write, rows, tmp_path):
    source = "def evaluate(output): return 1\ndef aggregate(results):\n    while True: pass\n"
    command = ["run", write("e.py", source), "--data", rows([{"output": 1}]), "--out", "o.jsonl"]
    process = subprocess.Popen(
        [sys.executable, "-m", "evalcell", *command], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr.readline() == "Aggregating 1 score ...\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert (
        err.lstrip() == "error: Interrupted.\nAll records are in 'o.jsonl'. Only aggregate did not come to its end.\n"
    )
    assert len((tmp_path / "o.jsonl").read_text().splitlines()) == 1


def test_strict_stops_at_a_malformed_line_before_fit_is_called(evalcell, write, rows):
    source = "def fit(rows):\n    raise ValueError('called')\ndef evaluate(output): return 1\n"
    arguments = ("run", write("e.py", source), "--data", rows([{"output": 1}, "{oops", {"output": 2}]))
    done = evalcell(*arguments, "--strict", "--rows", 1)
    assert done.code == 2
    assert "The dataset is malformed: line 2" in done.err
    assert "leave out --strict" in done.err
    assert "fit failed on the first 3 rows (1 of them could not be bound" in evalcell(*arguments).err
