"""`evalcell check`: says what would happen, executes nothing without data, and tries rows with it."""

import json

SOURCE = """# /// script
# [tool.evalcell]
# output = {range = [0.0, 1.0], threshold = 0.5}
# bind = {reference = "expected.text"}
# limits = {wall_seconds = 2.0}
# ///
print("executed")

def evaluate(output, reference, *, case=True):
    print("comparing", output)
    return {"score": float(output == reference), "explanation": "compared"}
"""


def test_check_says_the_sandbox_with_its_reason_and_every_setting_with_its_source(evalcell, write):
    done = evalcell("check", write("mine.py", SOURCE), "--set", "case=false")
    assert done.code == 0, done.err
    assert "wasm" in done.out
    assert "standard library" in done.out
    assert "reference <- expected.text  (file's block)" in done.out
    assert "case = false  (flag)" in done.out
    assert "limits.wall_seconds       2.0  (file's block)" in done.out
    assert "limits.memory_bytes       536870912  (default)" in done.out


def test_check_in_json_holds_the_same(evalcell, write):
    report = evalcell("check", write("mine.py", SOURCE), "--limit", "memory_bytes=128MiB", "--json").json()
    assert report["sandbox"]["name"] == "wasm"
    assert report["settings"]["limits.memory_bytes"] == {"value": 134217728, "source": "flag"}
    assert report["settings"]["isolation"] == {"value": "row", "source": "default"}
    assert [parameter["name"] for parameter in report["parameters"]] == ["output", "reference", "case"]
    assert report["tries"] == []


def test_check_executes_nothing_without_data(evalcell, write):
    source = "raise SystemExit('executed')\ndef evaluate(output): pass\n"
    assert evalcell("check", write("e.py", source)).code == 0


def test_check_with_data_shows_inputs_prints_and_results(evalcell, write, rows):
    data = rows(
        [{"output": "a", "expected": {"text": "a"}}, {"output": "b", "expected": {"text": "a"}}, {"output": "c"}]
    )
    done = evalcell("check", write("mine.py", SOURCE), "--data", data)
    assert done.code == 1
    assert "output = a" in done.out
    assert "reference = a" in done.out
    assert '"score": 1.0' in done.out
    assert "comparing a" in done.out
    assert "binding: parameter 'reference'" in done.out


def test_check_with_data_in_json_gives_the_records(evalcell, write, rows):
    data = rows([{"output": "a", "expected": {"text": "a"}}] * 9)
    tries = evalcell("check", write("mine.py", SOURCE), "--data", data, "--rows", 2, "--json").json()["tries"]
    assert [(item["row"], item["inputs"], item["records"][0]["score"]) for item in tries] == [
        (0, {"output": "a", "reference": "a"}, 1.0),
        (1, {"output": "a", "reference": "a"}, 1.0),
    ]


def test_check_shows_the_users_own_lines_of_a_traceback(evalcell, write, rows):
    done = evalcell(
        "check",
        write("e.py", "import json\ndef evaluate(output):\n    return json.loads(output)\n"),
        "--data",
        rows([{"output": "{"}]),
    )
    assert done.code == 1
    assert 'File "e.py", line 3, in evaluate' in done.out
    assert "decoder.py" not in done.out


def test_check_spells_out_control_characters_of_the_block(evalcell, write):
    block = "# /// script\n# [tool.evalcell]\n# bind = {output = \"['\\u001b]0;owned\\u0007']\"}\n# ///\n"
    done = evalcell("check", write("e.py", block + "def evaluate(output): pass\n"))
    assert done.code == 0, done.err
    assert "\x1b" not in done.out
    assert "owned" in done.out


def test_help_teaches(evalcell):
    for arguments in ([], ["--help"], ["run", "--help"], ["check", "--help"]):
        done = evalcell(*arguments)
        assert "evalcell" in done.out + done.err
    run = evalcell("run", "--help").out
    for word in (
        "--bind",
        "--set",
        "--limit",
        "--isolation",
        "--workers",
        "--out",
        "--rows",
        "--strict",
        "--allow-failures",
        "--json",
        "examples/json_distance.py",
    ):
        assert word in run


def test_version_is_printed(evalcell):
    assert evalcell("--version").out.startswith("evalcell, version 0.")


def test_a_huge_source_and_a_parser_bomb_are_answered_and_bounded(evalcell, write):
    huge = evalcell("check", write("huge.py", "x = 1\n" * 400_000))
    assert huge.code == 2
    assert "larger than" in huge.err
    bomb = evalcell("check", write("bomb.py", "-" * 200_000 + "1\n"))
    assert bomb.code == 2
    assert json.loads(evalcell("check", write("bomb.py", "(" * 50_000), "--json").out)["error"]["kind"] == "syntax"
