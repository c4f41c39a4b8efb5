"""What `evalcell doctor` says where there is no client for engines, or no engine."""

BLOCKED = """
import sys
from evalcell_sandboxes import versions
real = versions.installed
versions.installed = lambda package: None if package == "docker" else real(package)
sys.modules["docker"] = None
"""


def test_doctor_names_the_extra_that_is_not_installed(evalcell, tmp_path):
    """The interpreter of a user who has installed evalcell without it."""
    (tmp_path / "sitecustomize.py").write_text(BLOCKED)
    done = evalcell("doctor", env={"PYTHONPATH": str(tmp_path)})
    assert done.code == 4
    assert "the package 'docker' is not installed. Install it with: pip install 'evalcell[container]'" in done.out
    assert "missing engine (safe from" in done.out
    assert "Traceback" not in done.out + done.err


def test_doctor_does_not_call_an_engine_old_that_is_not_there(evalcell, tmp_path):
    done = evalcell("doctor", env={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert done.code == 4
    assert "missing engine (safe from" in done.out
    assert "too old" not in done.out
