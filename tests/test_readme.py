"""The README tells the truth: its commands run, and print what it says they print."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n(.*?)```", README, re.DOTALL)


def _commands():
    for block in BLOCKS:
        command, _, output = block.partition("\n")
        if command.startswith("$ evalcell"):
            yield pytest.param(command.removeprefix("$ "), output, id=command[2:40])


@pytest.mark.parametrize(("command", "output"), list(_commands()))
def test_a_command_of_the_readme_prints_what_it_says(command, output, stable):
    done = subprocess.run(
        [sys.executable, "-m", "evalcell", *shlex.split(command)[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if output:
        assert stable(done.stdout) == stable(output)


def test_the_make_commands_of_the_readme_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z]+)`", README))
    assert named == {"demo", "test"}
    assert named <= targets


def test_links_of_the_documentation_lead_somewhere():
    for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_python_of_the_readme_runs(evalcell, write, rows):
    first = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    done = evalcell("run", write("mine.py", first), "--data", rows([{"output": " Yes", "reference": "yes"}]), "--json")
    assert done.json()["scores"]["mine"]["mean"] == 1.0


def test_the_way_of_a_newcomer_works_as_it_is_written(tmp_path):
    """All but the clone and the install, which take a network: those are done by CI's own set-up."""
    (tmp_path / "answers.csv").write_text(re.search(r"```csv\n(.*?)```", README, re.DOTALL)[1], encoding="utf-8")
    block = next(block for block in BLOCKS if "pip install" in block)
    commands = re.findall(r"^\$ (.*)$", block, re.MULTILINE)
    assert len(commands) <= 5
    own = [shlex.split(command)[1:] for command in commands if command.startswith("evalcell")]
    for arguments in own:
        done = subprocess.run([sys.executable, "-m", "evalcell", *arguments], cwd=tmp_path, check=False, timeout=120)
        assert done.returncode == 0
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 3
