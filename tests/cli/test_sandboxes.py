"""Sandboxes of one's own, under names."""

import json
import stat

import pytest

SOURCE = "import os\n\ndef evaluate(output):\n    return output\n"


@pytest.fixture
def cell(evalcell, tmp_path):
    """The command with a data directory of its own."""
    home = {"EVALCELL_DATA_DIR": str(tmp_path / "data")}
    return lambda *arguments, env=None, **options: evalcell(*arguments, env={**home, **(env or {})}, **options)


def test_a_sandbox_is_kept_shown_listed_replaced_and_forgotten(cell):
    added = cell("sandboxes", "add", "text", "--dep", "NumPy >= 2", "--env", "TOKEN", "--limit", "memory_bytes=1GB")
    assert added.code == 0, added.err
    said = {"dependencies": ["numpy>=2"], "env": ["TOKEN"], "limits": {"memory_bytes": 10**9}}
    assert cell("sandboxes", "show", "text", "--json").json() == {"name": "text", **said}
    assert cell("sandboxes", "list", "--json").json() == {"text": said}
    assert "dependencies numpy>=2" in cell("sandboxes", "list").out
    again = cell("sandboxes", "add", "text", "--network", "full")
    assert (again.code, "--replace" in again.err) == (2, True)
    assert cell("sandboxes", "add", "text", "--network", "full", "--replace").code == 0
    assert cell("sandboxes", "show", "text", "--json").json() == {"name": "text", "network": "full"}
    assert cell("sandboxes", "rm", "text").code == 0
    gone = cell("sandboxes", "show", "text")
    assert (gone.code, "There is no sandbox 'text'" in gone.err) == (2, True)
    assert "no sandboxes of yours yet" in cell("sandboxes", "list").out


def test_what_is_kept_is_for_its_owner_alone_and_holds_no_value(cell, tmp_path):
    cell("sandboxes", "add", "text", "--env", "TOKEN", env={"TOKEN": "hunter2-hunter2"})
    kept = tmp_path / "data" / "sandboxes" / "text.json"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert "hunter2" not in kept.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["../evil", "--dep", "x"], "cannot be a name"),
        (["UPPER", "--dep", "x"], "cannot be a name"),
        (["wasm", "--dep", "x"], "name of a wall"),
        (["mine"], "would say nothing"),
        (["mine", "--dep", "./local"], "--dep"),
        (["mine", "--env", "TOKEN=abc"], "without its value"),
        (["mine", "--base", "\udcff"], "not a name"),
        (["mine", "--runtime", "ab\udcff"], "not a name"),
        (["mine", "--limit", "wall=1"], "no limit 'wall'"),
        (["mine", "--wall", "brick"], "no wall 'brick'"),
        (["mine", "--wall", "wasm", "--network", "full"], "is for containers"),
        (["mine", "--dep-file", "missing.txt"], "missing.txt"),
    ],
)
def test_what_makes_no_sense_is_refused_on_the_way_in(cell, tmp_path, arguments, message):
    done = cell("sandboxes", "add", *arguments)
    assert done.code == 2
    assert message in done.err
    assert not list(tmp_path.glob("data/sandboxes/*"))


@pytest.mark.parametrize("said", ["hunter2-hunter2", "hunter2=hunter2", "=hunter2"])
def test_a_value_that_was_said_instead_of_a_name_is_not_repeated(cell, said):
    done = cell("sandboxes", "add", "mine", "--env", said)
    assert done.code == 2
    assert "not the name of a variable" in done.err
    assert "hunter2" not in done.err


@pytest.mark.parametrize("command", [("layers", "build"), ("lock",), ("check",)])
def test_a_source_may_be_as_large_as_a_flag_says(cell, write, command):
    large = write("large.py", SOURCE + "#" * 1_100_000)
    refused = cell(*command, large)
    assert "Raise it with --limit source_bytes=N" in refused.err
    allowed = cell(*command, large, "--limit", "source_bytes=2MiB")
    assert "source_bytes=N" not in allowed.out + allowed.err
    assert ("packages, so" in allowed.out + allowed.err) == (command != ("check",))


def test_packages_come_by_file_by_pipe_and_pasted(cell, write):
    listed = write("needs.txt", "# ours\nnumpy>=2\n\nscipy\n")
    assert cell("sandboxes", "add", "a", "--dep-file", listed).code == 0
    assert cell("sandboxes", "add", "b", "--dep-file", "-", stdin="numpy>=2\nscipy\n").code == 0
    assert cell("sandboxes", "add", "c", "--dep", "numpy>=2\nscipy").code == 0
    kept = cell("sandboxes", "list", "--json").json()
    assert [kept[name]["dependencies"] for name in "abc"] == [["numpy>=2", "scipy"]] * 3
    bad = cell("sandboxes", "add", "d", "--dep-file", "-", stdin="numpy\n-r other.txt\n")
    assert (bad.code, "Line 2" in bad.err) == (2, True)


def test_a_kept_sandbox_that_was_spoilt_is_refused_with_a_way_out(cell, tmp_path):
    cell("sandboxes", "add", "mine", "--env", "TOKEN")
    kept = tmp_path / "data" / "sandboxes" / "mine.json"
    kept.write_text('{"network": "half"}')
    cell("sandboxes", "add", "other", "--env", "TOKEN")
    assert "other  env TOKEN" in cell("sandboxes", "list").out
    for command in (("show", "mine"), ("list",)):
        done = cell("sandboxes", *command)
        assert done.code == 2
        assert "makes no sense" in done.err
        assert "evalcell sandboxes rm mine" in done.err
    for text in (b"{", b"[" * 100_000, b'{"limits": {"wall_seconds": "0"}}', b"[]", b'{"env": ["\xff\xfe"]}'):
        kept.write_bytes(text)
        spoilt = cell("sandboxes", "show", "mine")
        assert (spoilt.code, "Traceback" in spoilt.err) == (2, False)
    kept.with_name("folder.json").mkdir()
    assert "folder" not in cell("sandboxes", "list").out
    assert cell("sandboxes", "rm", "mine").code == 0


def test_a_data_directory_that_others_can_write_to_is_refused(cell, tmp_path):
    cell("sandboxes", "add", "mine", "--env", "TOKEN")
    (tmp_path / "data" / "sandboxes").chmod(0o777)
    done = cell("sandboxes", "show", "mine")
    assert done.code == 4
    assert "EVALCELL_DATA_DIR" in done.err


def test_check_says_what_came_from_the_sandbox(cell, write):
    cell("sandboxes", "add", "mine", "--limit", "wall_seconds=3", "--isolation", "evaluator")
    report = cell("check", write("e.py", SOURCE), "--sandbox", "mine", "--isolation", "row", "--json").json()
    assert report["settings"]["limits.wall_seconds"] == {"value": 3.0, "source": "sandbox 'mine'"}
    assert report["settings"]["isolation"] == {"value": "row", "source": "flag"}
    assert (
        "limits.wall_seconds       3.0  (sandbox 'mine')"
        in cell("check", write("e.py", SOURCE), "--sandbox", "mine").out
    )


def test_a_typo_in_the_name_of_a_sandbox_gets_a_hint(cell, write, rows):
    cell("sandboxes", "add", "text-metrics", "--env", "TOKEN")
    done = cell("run", write("e.py", SOURCE), "--data", rows([{"output": 1}]), "--sandbox", "text-metric")
    assert done.code == 2
    assert "Did you mean 'text-metrics'" in done.err


def test_a_variable_that_is_not_set_stops_the_run_before_it_starts(cell, write, rows):
    done = cell("run", write("e.py", SOURCE), "--data", rows([{"output": 1}]), "--env", "NEVER_SET_ANYWHERE")
    assert done.code == 2
    assert "'NEVER_SET_ANYWHERE' is granted, but not set here" in done.err


def test_every_setting_is_in_check_with_its_source(cell, write):
    from evalcell.configuration import settings
    from evalcell_sandboxes import Limits

    source = "def fit(rows): pass\n" + SOURCE
    shown = cell("check", write("e.py", source), "--json").json()["settings"]
    expected = {name for name, _, _ in settings() if name != "limits"} | {
        f"limits.{name}" for name in Limits.__struct_fields__
    }
    assert expected <= set(shown)
    assert all(set(setting) == {"value", "source"} for setting in shown.values())
    assert shown["data_dir"]["source"] == "EVALCELL_DATA_DIR"
    text = cell("check", write("e.py", source)).out
    assert all(f"  {name} " in text for name in expected)


def test_evaluators_that_share_a_sandbox_share_its_layer(cell, write, rows, engine_address):
    block = '# /// script\n# dependencies = ["{}"]\n# ///\n'
    use = "from unidecode import unidecode\n\ndef evaluate(output):\n    return unidecode(output)\n"
    cell("sandboxes", "add", "plain", "--dep", "unidecode==1.3.8")
    built = cell("sandboxes", "build", "plain")
    assert built.code == 0, built.err
    assert "plain: unidecode==1.3.8" in built.out
    data = rows([{"output": "é"}])
    for name, source in (
        ("a.py", use),
        ("b.py", block.format("unidecode") + use),
        ("c.py", block.format("unidecode<2") + use),
    ):
        done = cell("run", write(name, source), "--data", data, "--sandbox", "plain", "--out", "-")
        assert done.code == 0, done.err
        assert json.loads(done.out.splitlines()[0])["label"] == "e"
        assert "Installing" not in done.err
        assert "Resolving" not in done.err
    layers = [layer for layer in cell("layers", "list", "--json").json() if "sandbox plain" in layer["evaluators"]]
    assert {"a.py", "b.py", "c.py"} <= set(layers[0]["evaluators"])  # the one used last
    checked = cell("check", write("b.py", block.format("unidecode") + use), "--sandbox", "plain").out
    assert "(lock of sandbox 'plain')" in checked
    other = cell("check", write("d.py", block.format("unidecode==1.3.7") + use), "--sandbox", "plain")
    assert other.code == 2
    assert "unidecode" in other.err


def test_the_page_of_settings_is_up_to_date():
    import subprocess
    import sys
    from pathlib import Path

    root = Path(__file__).parent.parent.parent
    made = subprocess.run(
        [sys.executable, root / "tools/settings-page"], capture_output=True, text=True, check=True
    ).stdout
    assert (root / "docs/settings.md").read_text() == made, "run `make docs`"


def test_reading_a_sandbox_follows_no_path_out_of_its_directory(cell, tmp_path):
    (tmp_path / "outside.json").write_text("{}")
    assert cell("sandboxes", "show", "../../outside").code == 2
