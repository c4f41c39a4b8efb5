"""A newcomer's first commands: new, doctor, completion, and the examples they start from."""

import json
import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest

from evalcell import doctor, examples
from evalcell.cli.doctor import _show as show_doctor
from evalcell.configuration import Operator
from evalcell.datasets import Row
from evalcell.engine.rows import RowWork
from evalcell.evaluator import SUFFIXES, Evaluator, understand
from evalcell.planning import make_plan
from evalcell.records import decode
from evalcell_sandboxes import FakeSandbox, Isolation, Language, Limits, Version, sandbox
from evalcell_sandboxes.versions import installed
from evalcell_sandboxes.wasm import prereqs, snapshot

ROOT = Path(__file__).parent.parent.parent


# -- new --------------------------------------------------------------------------------------------------------------
def test_new_writes_an_evaluator_that_runs_at_once(evalcell, tmp_path):
    made = evalcell("new", "politeness")
    assert made.code == 0
    assert len((tmp_path / "politeness.jsonl").read_text().splitlines()) == 3
    command = next(line.split() for line in made.out.splitlines() if "evalcell run" in line)
    done = evalcell(*command[1:], "--json")
    assert done.code == 0
    assert done.json()["rows"] == 3
    assert done.json()["scores"]["politeness"]["scored"] == 3


WITH_PACKAGES = {"hashing_similarity", "tfidf_fitted", "tfidf_pickled"}


@pytest.mark.parametrize("name", [name for name in examples.names() if name not in WITH_PACKAGES])
def test_new_from_every_example_runs_at_once(evalcell, name):
    assert evalcell("new", "mine", "--from", name).code == 0
    done = evalcell("run", "mine.py", "--data", "mine.jsonl", "--json")
    assert (done.code, done.json()["rows"]) == (0, 3)


@pytest.mark.parametrize("name", sorted(WITH_PACKAGES))
def test_an_example_that_needs_packages_runs_in_a_container(evalcell, engine_address, name):
    assert evalcell("new", "mine", "--from", name).code == 0
    done = evalcell("run", "mine.py", "--data", "mine.jsonl")
    assert done.code == 0, done.err
    assert "in container: 3 rows" in done.out


def test_without_an_engine_packages_run_nowhere(evalcell, tmp_path):
    assert evalcell("new", "mine", "--from", "hashing_similarity").code == 0
    done = evalcell("run", "mine.py", "--data", "mine.jsonl", env={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert done.code == 4
    assert "'container' is unavailable: no engine at unix://" in done.err
    assert "Start Docker" in done.err


def test_new_never_overwrites(evalcell, tmp_path):
    (tmp_path / "mine.jsonl").write_text("precious")
    done = evalcell("new", "mine")
    assert done.code == 2
    assert "'mine.jsonl' is there already" in done.err
    assert not (tmp_path / "mine.py").exists()
    assert (tmp_path / "mine.jsonl").read_text() == "precious"


def test_new_follows_no_link_and_leaves_no_half(evalcell, tmp_path):
    (tmp_path / "link.py").symlink_to(tmp_path / "elsewhere.py")
    assert evalcell("new", "link").code == 2
    assert not (tmp_path / "elsewhere.py").exists()
    assert not (tmp_path / "link.jsonl").exists()


def test_new_takes_a_path_and_a_name_with_its_ending(evalcell, tmp_path):
    assert evalcell("new", "some/where/judge.py").code == 0
    assert (tmp_path / "some/where/judge.py").exists()
    assert (tmp_path / "some/where/judge.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a b"], "no name for an evaluator"),
        ([".."], "no name for an evaluator"),
        (["judge.txt"], "no name for an evaluator"),
        (["x", "--from", "jsn_distance"], "Did you mean 'json_distance'?"),
    ],
)
def test_new_says_what_is_wrong(evalcell, arguments, message):
    done = evalcell("new", *arguments)
    assert done.code == 2
    assert message in done.err


@pytest.mark.parametrize(("language", "suffix"), SUFFIXES.items())
def test_examples_lie_where_the_package_looks_for_them(language, suffix):
    assert examples.names(language)[0] == examples.STARTER
    assert {path.stem for path in (ROOT / "examples").glob(f"*{suffix}")} == set(examples.names(language))


# -- doctor -----------------------------------------------------------------------------------------------------------
def test_doctor_finds_every_wall_of_this_version_well(evalcell, engine_address):
    done = evalcell("doctor", "--json")
    found = done.json()
    assert (done.code, found["well"]) == (0, True)
    wasm, container, deno = found["walls"]
    assert wasm["versions"][0]["name"] == "wasmtime"
    assert container["versions"][0]["name"] == "engine"
    assert deno["versions"][0]["name"] == "deno"
    for wall in (wasm, container, deno):
        assert len(wall["checks"]) == 7
        assert all(check["holds"] for check in wall["checks"])
    assert found["directories"][0]["size_bytes"] > 0


def test_doctor_speaks_to_people_too(evalcell, engine_address):
    done = evalcell("doctor")
    assert done.code == 0
    assert "wasm ready" in done.out
    assert "ok stops an endless loop" in done.out


def test_doctor_says_where_a_wall_is_slower_than_it_could_be(monkeypatch, capsys):
    monkeypatch.setattr(snapshot, "works_here", lambda: True)
    wall = doctor.examine().walls[0]
    assert (wall.well, wall.slower_because) == (True, None)
    monkeypatch.setattr(snapshot, "works_here", lambda: False)
    show_doctor(doctor.examine())
    assert "slower than elsewhere: memory cannot be put back" in capsys.readouterr().out


def test_doctor_says_what_is_missing_and_how_to_get_it(evalcell, tmp_path):
    """The interpreter of a user whose wasmtime was uninstalled: its metadata cannot be found."""
    (tmp_path / "sitecustomize.py").write_text(
        "from evalcell_sandboxes import versions\n"
        "real = versions.installed\n"
        "versions.installed = lambda package: None if package == 'wasmtime' else real(package)\n"
    )
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = evalcell("doctor", env={"PYTHONPATH": os.pathsep.join(path)})
    assert done.code == 4
    assert "wasm not ready" in done.out
    assert "pip install 'wasmtime" in done.out


def test_doctor_reports_on_everything_else_when_the_cache_is_broken(evalcell, tmp_path):
    (tmp_path / "file").write_text("")
    for broken in (tmp_path / "file", _writable_by_all(tmp_path / "open")):
        done = evalcell("doctor", "--json", env={"EVALCELL_CACHE_DIR": str(broken)})
        assert done.code == 4
        wasm = done.json()["walls"][0]
        assert str(broken) in wasm["missing"]
        assert done.json()["optional"]["pyarrow"]


@pytest.mark.parametrize(
    ("variable", "command"),
    [
        ("EVALCELL_CACHE_DIR", ("check", "judge.py")),
        ("EVALCELL_DATA_DIR", ("sandboxes", "add", "careful", "--env", "TOKEN")),
    ],
)
def test_a_directory_that_cannot_be_made_is_named_with_what_names_another(evalcell, write, variable, command):
    write("judge.py", "def evaluate(output): return 1")
    done = evalcell(*command, env={variable: "/proc/nowhere"})
    assert done.code == 4
    assert "'/proc/nowhere'" in done.err
    assert f"Set {variable} to a directory of your own." in done.err


def _writable_by_all(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o777)
    return path


def test_a_package_has_the_version_that_its_metadata_says():
    assert {name: installed(name) for name in ("click", "msgspec", "wasmtime")} == {
        name: metadata.version(name) for name in ("click", "msgspec", "wasmtime")
    }
    assert installed("no-such-package") is None


def test_a_wasmtime_with_known_ways_out_is_not_used(monkeypatch):
    monkeypatch.setattr(prereqs, "wasmtime", lambda: Version("wasmtime", "48.0.3", "50.0.0"))
    assert "48.0.3 is older than 50.0.0" in sandbox("wasm").unavailable_reason()


@pytest.mark.parametrize(
    ("found", "safe"),
    [
        ("50.0.0", True),
        ("50.0.1", True),
        ("51.0", True),
        ("49.9.9", False),
        ("50.0.0rc1", False),
        ("50.0.0+dfsg1", True),
        (None, False),
        ("x", False),
    ],
)
def test_versions_below_their_floor_are_not_safe(found, safe):
    assert Version("wasmtime", found, "50.0.0").safe is safe


def test_doctor_notices_a_wall_that_does_not_hold():
    """The control: the same attempts without a wall, in one interpreter that rows share."""
    source = doctor.SOURCES[Language.PYTHON].replace("while attempt", "if attempt")  # nobody would stop it
    evaluator = Evaluator.from_source(source, name="doctor")
    plan = make_plan(
        understand(evaluator, sandbox("wasm").describe(evaluator.text, Limits())), Operator(), started_ns=0
    ).plan
    namespace: dict = {}
    fake = FakeSandbox(
        lambda source: exec(source, namespace) or namespace["evaluate"] if not namespace else namespace["evaluate"]
    )
    confinement = type(plan.confinement)(isolation=Isolation.EVALUATOR)
    with doctor.canaries() as (file, port, hits), fake.open(plan.program, confinement) as session:
        rows = [
            Row(n, None, json.dumps({"attempt": attempt, "file": file, "port": port}).encode())
            for n, attempt in enumerate(doctor.ATTEMPTS)
        ]
        work = RowWork(plan)
        list(work.run(session, rows))
        found = [decode(lines) for lines in work.take().rows]
        deadline = time.monotonic() + 5
        while not hits() and time.monotonic() < deadline:
            time.sleep(0.01)
        checks = list(doctor.judge(found, hits()))
    assert [check.holds for check in checks] == [True, False, False, False, False, False, False]


# -- completion -------------------------------------------------------------------------------------------------------
def _complete(words: list[str]) -> list[str]:
    """What bash would be told for these words, the last of them unfinished."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv[0] = 'evalcell'; from evalcell.cli.entry import main; main()"],
        env={
            **os.environ,
            "_EVALCELL_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["evalcell", "d"], ["doctor"]),
        (["evalcell", "run", "--iso"], ["--isolation"]),
        (["evalcell", "run", "x.py", "--format", "p"], ["parquet"]),
        (["evalcell", "run", "x.py", "--limit", "wall"], ["wall_seconds="]),
        (["evalcell", "run", "x.py", "--sandbox", "w"], ["wasm"]),
        (["evalcell", "new", "x", "--from", "js"], ["json_distance"]),
    ],
)
def test_a_shell_completes(words, expected):
    assert _complete(words) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(evalcell, shell):
    done = evalcell("completion", shell)
    assert done.code == 0
    assert f"_EVALCELL_COMPLETE={shell}_complete" in done.out


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="there is no bash")
def test_the_script_works_in_a_real_bash(evalcell, tmp_path):
    script = evalcell("completion", "bash").out
    (tmp_path / "evalcell").write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "import sys; sys.argv[0] = \'evalcell\'; from evalcell.cli.entry import main; main()" "$@"\n'
    )
    (tmp_path / "evalcell").chmod(0o755)
    ask = f'{script}\nCOMP_WORDS=(evalcell do); COMP_CWORD=1\n_evalcell_completion evalcell\necho "${{COMPREPLY[@]}}"\n'
    done = subprocess.run(
        ["/bin/bash", "-c", ask],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "doctor"
