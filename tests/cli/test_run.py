"""`evalcell run`, as a user meets it: the real command, real files, every exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
EXACT = "def evaluate(output, reference):\n    return output == reference\n"
PAIRS = [{"id": f"r{n}", "output": n % 3, "reference": n % 2} for n in range(12)]

FIELDS = [
    "row",
    "id",
    "evaluator",
    "name",
    "version",
    "sandbox",
    "status",
    "score",
    "label",
    "passed",
    "explanation",
    "metadata",
    "error",
    "stdout",
    "stderr",
    "usage",
]


def read(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_the_example_scores_every_row_and_writes_one_record_each(evalcell, tmp_path):
    done = evalcell(
        "run", EXAMPLES / "json_distance.py", "--data", EXAMPLES / "extraction.jsonl", "--out", "results.jsonl"
    )
    assert done.code == 0, done.err
    assert "json_distance" in done.out
    assert "24 rows" in done.out
    records = read(tmp_path / "results.jsonl")
    assert [list(record) for record in records] == [FIELDS] * 24
    assert [record["row"] for record in records] == list(range(24))
    assert {record["status"] for record in records} == {"scored", "skipped"}
    assert records[0]["id"] == "INV-2024-1000"
    assert records[0]["score"] == 0.0
    assert records[0]["passed"] is True
    assert set(records[0]["usage"]) == {"wall_seconds", "cpu_seconds", "memory_bytes"}
    assert not (tmp_path / "results.jsonl.partial").exists()


def test_the_summary_is_right_in_json(evalcell, write, rows):
    done = evalcell("run", write("exact.py", EXACT), "--data", rows(PAIRS), "--json")
    summary = done.json()
    assert done.code == 0
    assert done.err == ""
    assert (summary["rows"], summary["failed"], summary["sandbox"]) == (12, 0, "wasm")
    assert summary["scores"]["exact"]["mean"] == pytest.approx(sum(n % 3 == n % 2 for n in range(12)) / 12)
    assert summary["scores"]["exact"]["stderr"] > 0


def test_an_undeclared_import_names_the_line_to_add(evalcell, write, rows):
    done = evalcell("run", write("e.py", "import sklearn\n" + EXACT), "--data", rows(PAIRS))
    assert done.code == 2
    assert '# dependencies = ["scikit-learn"]' in done.err


def test_failed_rows_exit_with_1_unless_allowed(evalcell, write, rows):
    evaluator = write("e.py", "def evaluate(output): return 1 / output\n")
    data = rows([{"output": 1}, {"output": 0}, {"output": 2}])
    done = evalcell("run", evaluator, "--data", data)
    assert done.code == 1
    assert "raised 1" in done.out
    assert "ZeroDivisionError" in done.out
    assert evalcell("run", evaluator, "--data", data, "--allow-failures").code == 0


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def evaluate(:\n", "line 1: invalid syntax"),
        ("def score(output): pass\n", "defines no evaluate"),
        ("x = 1 / 0\n" + EXACT, "ZeroDivisionError"),
        ("import os; os._exit(0)\n" + EXACT, "crashed while it was loaded"),
        ("# /// script\n# [tool.evalcell]\n# outptu = 1\n# ///\n" + EXACT, "Did you mean 'output'"),
        ("import ssl\n" + EXACT, "'ssl'"),
    ],
    ids=["syntax", "no-evaluate", "load", "load-crash", "metadata", "absent"],
)
def test_a_file_that_cannot_be_run_exits_with_2_and_says_why(evalcell, write, rows, source, message):
    done = evalcell("run", write("e.py", source), "--data", rows(PAIRS))
    assert done.code == 2
    assert message in done.err
    assert "Traceback (most recent call last)" not in done.err.replace(
        'Traceback (most recent call last):\n  File "e.py"', ""
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nothing.py", "--data", "rows.jsonl"], "no file 'nothing.py'"),
        (["run", "e.py", "--data", "nothing.jsonl"], "no dataset 'nothing.jsonl'"),
        (["run", "e.py"], "Missing option '--data'"),
        (["run", "e.py", "--data", "rows.jsonl", "--limit", "wall_secs=1"], "Did you mean 'wall_seconds'"),
        (["run", "e.py", "--data", "rows.jsonl", "--limit", "wall_seconds=soon"], "is not a number"),
        (["run", "e.py", "--data", "rows.jsonl", "--bind", "outptu=x"], "Did you mean 'output'"),
        (["run", "e.py", "--data", "rows.jsonl", "--bind", "output"], "not NAME=VALUE"),
        (["run", "e.py", "--data", "rows.jsonl", "--bind", "output=a..b"], "'..'"),
        (["run", "e.py", "--data", "rows.jsonl", "--isolation", "none"], "'row', 'evaluator'"),
        (["run", "e.py", "--data", "rows.jsonl", "--out", "/nowhere/x.jsonl"], "cannot be written"),
        (
            ["run", "e.py", "--data", "rows.jsonl", "--sandbox", "wsam"],
            "no sandbox 'wsam'; there are 'wasm', 'container', 'deno'. Did you mean 'wasm'?",
        ),
        (["run", "e.py", "--data", "rows.jsonl", "--limit", "load_seconds=99999999999"], "cannot work"),
        (["run", "e.py", "--data", "rows.jsonl", "--out", "."], "is a directory"),
        (["run", "e.py", "--data", "rows.jsonl", "--out", ""], "names no file"),
        (["run", "e.py", "--data", "rows.jsonl", "--out", "rows.jsonl"], "would overwrite the dataset"),
        (["run", "e.py", "--data", "rows.jsonl", "--set", "output=99999999999999999999999"], "64 bits"),
        (["runn"], "No such command"),
    ],
)
def test_a_mistake_on_the_command_line_is_named(evalcell, write, rows, arguments, message):
    write("e.py", EXACT)
    rows(PAIRS)
    done = evalcell(*arguments)
    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err


def test_errors_are_json_when_json_is_asked_for(evalcell, write, rows):
    done = evalcell("run", write("e.py", "def evaluate(:"), "--data", rows(PAIRS), "--json")
    assert done.code == 2
    assert done.json()["error"]["kind"] == "syntax"


def test_bindings_literals_ids_and_limits_reach_the_rows(evalcell, write, rows, tmp_path):
    source = (
        "def evaluate(output, reference, weight): return {'score': weight * (output == reference), 'label': output}\n"
    )
    data = rows([{"meta": {"key": "k1"}, "answers": [{"text": "a"}, {"text": "b"}], "reference": "b"}])
    done = evalcell(
        "run",
        write("e.py", source),
        "--data",
        data,
        "--bind",
        "output=answers[-1].text",
        "--set",
        "weight=0.5",
        "--id",
        "meta.key",
        "--out",
        "o.jsonl",
    )
    assert done.code == 0, done.err
    (record,) = read(tmp_path / "o.jsonl")
    assert (record["score"], record["label"], record["id"]) == (0.5, "b", "k1")


def test_a_missing_path_is_warned_of_and_fails_its_rows_alone(evalcell, write, rows, tmp_path):
    data = rows([{"output": 1, "expected": 1}, {"output": 1, "reference": 1}])
    done = evalcell("run", write("e.py", EXACT), "--data", data, "--out", "o.jsonl")
    assert done.code == 1
    assert "warning" in done.err
    assert "--bind" in done.err
    assert [record["error"] and record["error"]["kind"] for record in read(tmp_path / "o.jsonl")] == ["binding", None]


def test_a_malformed_line_is_reported_with_its_number_or_stops_a_strict_run(evalcell, write, rows, tmp_path):
    data = rows([PAIRS[0], "{oops", PAIRS[1]])
    done = evalcell("run", write("e.py", EXACT), "--data", data, "--out", "o.jsonl")
    assert done.code == 1
    assert "line 2" in done.err
    assert [record["status"] for record in read(tmp_path / "o.jsonl")] == ["scored", "failed", "scored"]
    strict = evalcell("run", write("e.py", EXACT), "--data", data, "--strict", "--out", "strict.jsonl")
    assert strict.code == 2
    assert "line 2" in strict.err
    assert not (tmp_path / "strict.jsonl").exists()
    assert "strict.jsonl.partial" in strict.err


def test_rows_come_from_standard_input_and_records_go_to_standard_output(evalcell, write):
    stdin = "".join(json.dumps(row) + "\n" for row in PAIRS)
    done = evalcell("run", write("e.py", EXACT), "--data", "-", "--out", "-", stdin=stdin)
    assert done.code == 0
    assert [json.loads(line)["id"] for line in done.out.splitlines()] == [row["id"] for row in PAIRS]
    assert "12 rows" in done.err


def test_a_json_list_and_a_row_count_are_honoured(evalcell, write):
    data = write("rows.json", json.dumps(PAIRS))
    assert evalcell("run", write("e.py", EXACT), "--data", data, "--rows", 5, "--json").json()["rows"] == 5


def test_an_empty_dataset_is_an_error_and_not_a_success(evalcell, write, rows):
    done = evalcell("run", write("e.py", EXACT), "--data", rows([]))
    assert done.code == 2
    assert "no rows" in done.err


def test_the_block_asks_and_the_operator_grants(evalcell, write, rows):
    block = '# /// script\n# [tool.evalcell]\n# isolation = "evaluator"\n# ///\n'
    evaluator, data = write("e.py", block + EXACT), rows(PAIRS)
    refused = evalcell("run", evaluator, "--data", data)
    assert refused.code == 2
    assert "--isolation evaluator" in refused.err
    assert evalcell("run", evaluator, "--data", data, "--isolation", "evaluator").code == 0


def test_an_evaluators_words_cannot_command_the_terminal(evalcell, write, rows):
    source = "def evaluate(output): raise ValueError('\\x1b]0;owned\\x07\\x1b[2J[bold]plain[/bold] :smile:')\n"
    done = evalcell("run", write("e.py", source), "--data", rows([{"output": 1}]))
    assert "\x1b" not in done.out
    assert "\\x1b]0;owned" in done.out
    assert "[bold]plain[/bold] :smile:" in done.out


def test_a_broken_evaluator_leaves_an_earlier_partial_file_alone(evalcell, write, rows, tmp_path):
    (tmp_path / "o.jsonl.partial").write_text("kept")
    done = evalcell("run", write("e.py", "def evaluate(:"), "--data", rows(PAIRS), "--out", "o.jsonl")
    assert done.code == 2
    assert "partial" not in done.err
    assert (tmp_path / "o.jsonl.partial").read_text() == "kept"


def test_a_link_is_followed_and_a_device_is_written_to(evalcell, write, rows, tmp_path):
    (tmp_path / "real.jsonl").write_text("old")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "real.jsonl")
    assert evalcell("run", write("e.py", EXACT), "--data", rows(PAIRS), "--out", "link.jsonl").code == 0
    assert (tmp_path / "link.jsonl").is_symlink()
    assert len(read(tmp_path / "real.jsonl")) == 12
    full = evalcell("run", write("e.py", EXACT), "--data", rows(PAIRS), "--out", "/dev/full")
    assert full.code == 2
    assert "No space left" in full.err
    assert Path("/dev/full").is_char_device()


def test_a_broken_list_scores_the_rows_before_the_break(evalcell, write, tmp_path):
    data = write("rows.json", json.dumps(PAIRS)[:-20])
    done = evalcell("run", write("e.py", EXACT), "--data", data, "--out", "o.jsonl")
    assert done.code == 2
    assert "ends in the middle of element 11" in done.err
    assert len(read(tmp_path / "o.jsonl.partial")) == 11


def test_many_malformed_lines_are_told_in_few_words(evalcell, write, rows):
    done = evalcell("run", write("e.py", EXACT), "--data", rows(["{oops"] * 200 + PAIRS))
    assert done.code == 1
    assert done.err.count("Malformed row") == 3
    assert "197 more malformed rows" in done.err


def test_a_reader_that_leaves_early_is_no_error_of_the_rows(write, rows, tmp_path):
    command = [
        sys.executable,
        "-m",
        "evalcell",
        "run",
        write("e.py", EXACT),
        "--data",
        rows(PAIRS * 500),
        "--out",
        "-",
        "--isolation",
        "evaluator",
    ]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=30) == 141
        assert process.stderr.read() == b""


def test_rows_of_a_slow_pipe_are_scored_as_they_come(write, tmp_path):
    command = [sys.executable, "-m", "evalcell", "run", write("e.py", EXACT), "--data", "-", "--out", "-"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    for row in PAIRS[:3]:
        process.stdin.write(json.dumps(row).encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == row["id"]
    process.stdin.close()
    assert process.wait(timeout=30) == 0
    process.stdout.close()


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("def evaluate(output): return {str(n): 1.0 for n in range(60_000)}", "invalid_result"),
        ("def evaluate(output): return [{'name': str(n), 'score': 1} for n in range(20_000)]", "invalid_result"),
        ("def evaluate(output):\n    print('x' * 60_000)\n    return {f'score {n}': 1.0 for n in range(100)}", None),
    ],
    ids=["dict", "list", "prints"],
)
def test_many_scores_with_many_prints_cost_the_host_little(evalcell, write, rows, tmp_path, source, status):
    started = time.monotonic()
    evalcell("run", write("e.py", source + "\n"), "--data", rows([{"output": 1}]), "--out", "o.jsonl")
    assert time.monotonic() - started < 10
    records = read(tmp_path / "o.jsonl")
    assert (records[0]["error"] or {}).get("kind") == status
    assert (tmp_path / "o.jsonl").stat().st_size < 200_000
    assert len(records) == (100 if status is None else 1)


def test_the_version_is_that_of_the_source_and_not_of_its_name(evalcell, write):
    one, two = (evalcell("check", write(name, EXACT), "--json").json()["version"] for name in ("one.py", "two.py"))
    assert one == two


@pytest.mark.parametrize("named", [True, False], ids=["fifo", "stdin"])
def test_an_interrupt_while_waiting_for_a_pipe_ends_at_once(write, tmp_path, named):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    keep_open = os.open(fifo, os.O_RDWR)
    os.write(keep_open, json.dumps(PAIRS[0]).encode() + b"\n")
    command = [
        sys.executable,
        "-m",
        "evalcell",
        "run",
        write("e.py", EXACT),
        "--data",
        fifo if named else "-",
        "--out",
        "o.jsonl",
    ]
    with fifo.open("rb") as stdin:
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL if named else stdin,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    os.close(keep_open)
    assert process.returncode == 130
    assert b"Interrupted" in err
    assert len(read(tmp_path / "o.jsonl.partial")) == 1


def test_a_first_row_that_is_not_text_is_malformed_and_no_crash(evalcell, write, tmp_path):
    (tmp_path / "rows.jsonl").write_bytes(
        b'{"output": {"\xff": 1, "a": 2}, "reference": 1}\n{"output": {"a": 1}, "reference": 1}\n'
    )
    done = evalcell("run", write("e.py", EXACT), "--data", "rows.jsonl", "--bind", "output=output.a")
    assert done.code == 1
    assert "Traceback" not in done.err


def test_scores_too_large_to_add_up_leave_the_summary_readable(evalcell, write, rows):
    source = "def evaluate(output): return 1.7e308 * output\n"
    done = evalcell(
        "run", write("e.py", source), "--data", rows([{"output": 1}, {"output": -1}, {"output": 1}]), "--json"
    )
    assert json.loads(done.out, parse_constant=pytest.fail)["rows"] == 3


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_and_names_what_was_written_and_leaves_no_process(write, rows, tmp_path, how):
    source = "def evaluate(output):\n    while output > 40: pass\n    return output\n"
    data = rows([{"output": n} for n in range(100)])
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "evalcell",
            "run",
            write("e.py", source),
            "--data",
            data,
            "--out",
            "o.jsonl",
            "--limit",
            "wall_seconds=60",
            "--workers",
            "2",
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    lanes = _wait_for_hanging_children(process.pid)
    _wait_until(lambda: (tmp_path / "o.jsonl.partial").exists() and (tmp_path / "o.jsonl.partial").stat().st_size)
    for _ in range(4):  # people press it more than once
        process.send_signal(how)
        time.sleep(0.02)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "o.jsonl.partial" in err
    assert not (tmp_path / "o.jsonl").exists()
    assert [record["row"] for record in read(tmp_path / "o.jsonl.partial")] == list(
        range(len(read(tmp_path / "o.jsonl.partial")))
    )
    time.sleep(0.2)
    assert not any(_alive(pid) for pid in lanes)


def test_lanes_die_with_a_parent_that_is_killed(write, rows, tmp_path):
    source = "def evaluate(output):\n    while True: pass\n"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "evalcell",
            "run",
            write("e.py", source),
            "--data",
            rows([{"output": 1}] * 5),
            "--limit",
            "wall_seconds=60",
        ],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    lanes = _wait_for_hanging_children(process.pid)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 10
    while any(_alive(pid) for pid in lanes) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(_alive(pid) for pid in lanes)


def _wait_until(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def _wait_for_hanging_children(pid: int) -> list[int]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        time.sleep(1.5)
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            return [int(child) for child in children]
    raise AssertionError("no worker process was started")


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("name", ["json", "typing", "csv", "random", "queue", "msgspec", "click", "rich", "wasmtime"])
def test_an_evaluator_named_like_a_module_is_not_imported_on_the_host(evalcell, write, rows, tmp_path, name):
    """`python -m` puts the current directory first: a file in it called `json.py` would be the host's json."""
    planted = tmp_path / "planted"
    source = f"try: open({str(planted)!r}, 'w')\nexcept OSError: pass\ndef evaluate(output): return 1.0\n"
    done = evalcell("run", write(f"{name}.py", source), "--data", rows([{"output": 1}]), "--json")
    assert done.code == 0, done.err
    assert not planted.exists()


def test_without_that_care_it_would_be(write, tmp_path):
    planted = tmp_path / "planted"
    write("csv.py", f"open({str(planted)!r}, 'w')\n")
    subprocess.run([sys.executable, "-c", "import csv"], cwd=tmp_path, capture_output=True, check=False)
    assert planted.exists()


def test_no_number_is_cut_where_there_is_no_screen(evalcell, write, rows):
    data = rows([{"output": -1.2345e-100}, {"output": 2.2345e-100}])
    name = "a_name_of_many_characters_" * 3
    done = evalcell("run", write(f"{name}.py", "def evaluate(output): return output\n"), "--data", data)
    assert done.code == 0, done.err
    assert [name, "2", "5e-101", "1.734e-100", "-1.234e-100", "2.234e-100", "-", "0", "0"] in [
        line.split() for line in done.out.splitlines()
    ]
