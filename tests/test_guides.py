"""The guides tell the truth: their files are written, their commands run, and what they print is what the guide shows."""

import os
import shlex
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from guides import GUIDES, commands, steps

ON_AN_ENGINE = {"packages.md"}
"""Those that need one. For the others it is as if there were none, and none named."""
UNSAID = {"EVALCELL_DATA_DIR": "", "EVALCELL_CACHE_DIR": ""}
IN_THEIR_OWN_WAY = {"python.md", "docker.md"}
"""The first is below; the second is followed where there is an image to run, in tests/image."""


def run(command: str, directory: Path, exported: dict[str, str]) -> str:
    arguments = shlex.split(command)
    if arguments[0] == "export":
        exported.update(argument.split("=", 1) for argument in arguments[1:])
        return ""
    assert arguments[0] == "evalcell"
    done = subprocess.run(
        [sys.executable, "-m", "evalcell", *arguments[1:]],
        cwd=directory,
        env={**os.environ, "COLUMNS": "100", "XDG_DATA_HOME": str(directory / ".data"), **UNSAID, **exported},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stderr + done.stdout


def follow(guide: str, directory: Path):
    """Does what the guide says, and gives each command with the output that is shown and the one that came."""
    exported = {} if guide in ON_AN_ENGINE else {"DOCKER_HOST": ""}
    for step in steps(guide):
        if step["file"]:
            (directory / step["file"]).write_text(step["content"], encoding="utf-8")
        elif step["language"] == "console":
            for command, output in commands(step["content"]):
                yield command, output, run(command, directory, exported)


@pytest.mark.parametrize("guide", sorted({path.name for path in GUIDES.glob("*.md")} - IN_THEIR_OWN_WAY))
def test_the_commands_of_a_guide_print_what_it_shows(guide, tmp_path, stable, request):
    if guide in ON_AN_ENGINE:  # whose first run has more to say than later ones
        request.getfixturevalue("engine_address")
        (tmp_path / "before").mkdir()
        list(follow(guide, tmp_path / "before"))
    done = list(follow(guide, tmp_path))
    for command, shown, printed in done:
        assert stable(printed) == stable(shown), command
    assert done


def test_the_python_guide_runs_and_prints_what_it_shows():
    namespace: dict = {}
    printed = ""
    for step in steps("python.md"):
        if step["language"] == "python":
            out = StringIO()
            with redirect_stdout(out), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # the guide says that it comes
                exec(compile(step["content"], "python.md", "exec"), namespace)
            printed = out.getvalue()
        else:
            assert printed == step["content"]
