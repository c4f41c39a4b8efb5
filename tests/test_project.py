"""The project's own files agree with each other."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import evalcell_sandboxes
from evalcell_sandboxes.wasm import image

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_build_requires_the_componentize_py_that_names_the_image():
    wanted = f"componentize-py=={image.COMPONENTIZE_PY}"
    assert wanted in PYPROJECT["build-system"]["requires"]
    assert wanted in PYPROJECT["dependency-groups"]["build"]
    assert not any("componentize" in item for item in PYPROJECT["project"]["dependencies"])


def test_requirements_are_locked_with_hashes_and_without_addresses():
    locked = (ROOT / "requirements/dev.txt").read_text()
    pinned = re.findall(r"^[a-z0-9-]+==\S+", locked, re.MULTILINE)
    assert len(pinned) > 20
    assert locked.count("--hash=sha256:") >= len(pinned)
    assert "://" not in locked
    assert "--index" not in locked


STARTS_A_PROGRAM = (
    r"subprocess\.(?!CalledProcessError).+|os\.(system|popen|spawn.*|exec.*|posix_spawn.*)|platform\.processor"
)


def test_no_program_is_started_with_an_environment_that_nobody_has_thought_about():
    """What the user has set may be a secret that was granted to code, and to nothing else."""
    started = []
    for path in (
        path for place in ("runtime", "sandboxes") for path in (ROOT / place).rglob("*.py") if "guest" not in path.parts
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and re.fullmatch(STARTS_A_PROGRAM, ast.unparse(node.func)):
                told = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}.get("env", "everything")
                started.append((path.name, told))
    assert len(started) >= 6
    assert [name for name, told in started if "everything" in told or "os.environ" in told] == []


PUBLIC = """
Asset Block Confinement Crashed DependencyProblem Description Exceeded Failure FakeSandbox Hook Import Invalid Isolation
Kind Language Limits Network Outcome Parameter Program Progress Raised Raw Returned Sandbox SandboxError SandboxFault SandboxUnavailable Session Site
SyntaxProblem TypeProblem Usage Version names sandbox silent
"""


def test_the_public_names_of_the_sandboxes_are_these():
    assert evalcell_sandboxes.__all__ == PUBLIC.split()
    for name in evalcell_sandboxes.__all__:
        assert getattr(evalcell_sandboxes, name) is not None


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """The wheel as users get it. Its image comes from the cache, so this takes a second."""
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(target.glob("*.whl"))


def test_the_wheel_fits_every_platform_and_carries_the_image(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert f"evalcell_sandboxes/wasm/{image.file_name()}" in names
    assert "evalcell_sandboxes/wasm/guest/wit/guest.wit" in names
    assert {"evalcell_sandboxes/guest/results.py", "evalcell_sandboxes/container/guest/supervisor.py"} <= set(names)
    assert any(name.endswith("licenses/NOTICE") for name in names)
    assert {name.split("/")[0] for name in names if "dist-info" not in name} == {
        "evalcell",
        "evalcell_sandboxes",
        "evalcell_evaluators",
    }


def test_no_page_names_a_path_of_somebodys_machine():
    for page in [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/*"),
        ROOT / "Makefile",
        ROOT / "Dockerfile",
    ]:
        assert not re.search(r"/(root|home/[a-z]+)/", page.read_text(encoding="utf-8", errors="replace")), page
