"""Assets are the author's to name: names that lead out, links, swaps, and contents that bite whoever looks into them."""

import hashlib
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import evalcell.assets
from evalcell.assets import ship
from evalcell.errors import EvaluatorError
from evalcell.evaluator import Evaluator
from evalcell_sandboxes import Limits

SOURCE = "def evaluate(output): return 1\n"
SECRET = b"the secret of somebody else"


@pytest.fixture
def home(tmp_path) -> Path:
    """An evaluator's directory, with a secret outside of it."""
    (tmp_path / "secret.txt").write_bytes(SECRET)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.txt").write_bytes(SECRET)
    home = tmp_path / "home"
    (home / "data").mkdir(parents=True)
    (home / "judge.py").write_text(SOURCE)
    (home / "words.txt").write_bytes(b"honest")
    (home / "data" / "words.txt").write_bytes(b"deeper")
    return home


def shipped(home: Path, *names: str, **limits: int):
    return ship(Evaluator.from_file(home / "judge.py"), names, Limits(**limits))


def refused(home: Path, *names: str, **limits: int) -> str:
    with pytest.raises(EvaluatorError) as caught:
        shipped(home, *names, **limits)
    assert caught.value.kind == "asset"
    return str(caught.value)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_honest_names_are_shipped_sorted_and_by_digest(home):
    found = [(asset.name, asset.sha256) for asset in shipped(home, "words.txt", "data/words.txt")]
    assert found == [("data/words.txt", digest(b"deeper")), ("words.txt", digest(b"honest"))]


@pytest.mark.parametrize(
    "name",
    [
        "../secret.txt",
        "data/../../secret.txt",
        "data/../words.txt",
        "..",
        "/etc/passwd",
        "//etc/passwd",
        "",
        ".",
        "./words.txt",
        "data//words.txt",
        "data/",
        "words.txt\0",
        "words.txt\n",
        "\x1b[2Jwords.txt",
        "..\\secret.txt",
        "C:\\words.txt",
        "\udcff.txt",
        "\u202ewords.txt",
        ".wh.words.txt",
        "data/.wh..wh..opq",
        "x" * 300,
        "x/" * 300 + "x",
    ],
)
def test_a_name_that_is_no_plain_path_inside_is_refused(home, name):
    assert "Name files beside the evaluator" in refused(home, name)


def test_a_file_is_not_named_twice_nor_the_evaluator_itself(home):
    assert "twice" in refused(home, "words.txt", "words.txt")
    (home / "\u00e9.txt").write_bytes(b"")
    assert "twice" in refused(home, "\u00e9.txt", "e\u0301.txt")
    assert "asks for itself" in refused(home, "judge.py")
    assert "1,001 assets" in refused(home, *map(str, range(1_001)))


def test_links_are_not_followed(home):
    (home / "link.txt").symlink_to("/etc/passwd")
    (home / "inner.txt").symlink_to("words.txt")
    (home / "linked").symlink_to("../elsewhere")
    (home / "hidden").symlink_to("data")
    for name in ("link.txt", "inner.txt", "linked/secret.txt", "hidden/words.txt"):
        assert "symbolic link" in refused(home, name)


@pytest.mark.parametrize("follows", [False, True], ids=["held", "control"])
def test_a_file_that_is_swapped_for_a_link_meanwhile_is_not_followed(home, monkeypatch, follows):
    """The swap comes between the look and the opening. Without the flag that holds, the secret is shipped."""

    def swapped(name: str, step: str, flags: int, at: int) -> int:
        (home / step).unlink()
        (home / step).symlink_to("../secret.txt")
        return opened(name, step, flags & ~os.O_NOFOLLOW if follows else flags, at)

    opened = evalcell.assets._open
    monkeypatch.setattr(evalcell.assets, "_open", swapped)
    if follows:
        assert shipped(home, "words.txt")[0].sha256 == digest(SECRET)
    else:
        assert "changed while it was opened" in refused(home, "words.txt")


@pytest.mark.parametrize("follows", [False, True], ids=["held", "control"])
def test_a_directory_that_is_swapped_for_a_link_meanwhile_is_not_followed(home, monkeypatch, follows):
    def swapped(name: str, step: str, flags: int, at: int) -> int:
        if step == "data":
            (home / "data").rename(home / "moved")
            (home / "data").symlink_to("../elsewhere")
        return opened(name, step, flags & ~os.O_NOFOLLOW if follows else flags, at)

    (home / "data" / "secret.txt").write_bytes(b"honest")
    opened = evalcell.assets._open
    monkeypatch.setattr(evalcell.assets, "_open", swapped)
    if follows:
        assert shipped(home, "data/secret.txt")[0].sha256 == digest(SECRET)
    else:
        assert "changed while it was opened" in refused(home, "data/secret.txt")


def test_a_file_that_is_swapped_for_a_pipe_meanwhile_does_not_block(home, monkeypatch):
    def swapped(name: str, step: str, flags: int, at: int) -> int:
        (home / step).unlink()
        os.mkfifo(home / step)
        return opened(name, step, flags, at)

    opened = evalcell.assets._open
    monkeypatch.setattr(evalcell.assets, "_open", swapped)
    assert "not a regular file" in refused(home, "words.txt")


def test_what_is_no_regular_file_is_refused_without_waiting_for_it(home):
    os.mkfifo(home / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.path.relpath(home / "socket"))
        for name in ("pipe", "socket", "data"):
            assert "not a regular file" in refused(home, name)
    assert "not a directory" in refused(home, "words.txt/below")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
def test_devices_are_refused(home):
    os.mknod(home / "zero", 0o20666, os.makedev(1, 5))
    assert "not a regular file" in refused(home, "zero")


def test_sizes_are_counted_together_and_no_more_is_read(home):
    assert len(shipped(home, "words.txt", "data/words.txt", asset_bytes=12)) == 2
    assert "--limit asset_bytes=N" in refused(home, "words.txt", "data/words.txt", asset_bytes=11)
    with (home / "huge").open("wb") as file:
        file.truncate(1 << 40)  # a hole: to read it would take half an hour
    assert "larger than 67,108,864 bytes" in refused(home, "huge")


def test_a_source_without_a_directory_ships_nothing(home):
    with pytest.raises(EvaluatorError, match="lies in no directory"):
        ship(Evaluator.from_source(SOURCE), ("words.txt",), Limits())


# -- a pickle that acts when it is looked into --------------------------------------------------------------------------
class Bomb:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self):
        return exec, (f"open({str(self.canary)!r}, 'w').write('bitten')",)


LOADS = """# /// script
# [tool.evalcell]
# assets = ["bomb.pkl"]
# ///
import os, pickle

try:
    pickle.load(open("bomb.pkl", "rb"))
    WENT_OFF = "file written"
except OSError as error:
    WENT_OFF = "file refused"


def evaluate(output):
    return {"label": WENT_OFF}
"""


@pytest.fixture
def canary():
    """A path that can be written to both here and in a container."""
    path = Path(f"/tmp/evalcell-canary-{os.getpid()}")
    path.unlink(missing_ok=True)
    yield path
    path.unlink(missing_ok=True)


@pytest.mark.parametrize(("wall", "label"), [("wasm", "file refused"), ("container", "file written")])
def test_a_pickle_is_unpickled_behind_the_wall_and_nowhere_else(evalcell, write, rows, canary, wall, label, request):
    if wall == "container":
        request.getfixturevalue("engine_address")
    bomb = write("bomb.pkl", "")
    bomb.write_bytes(pickle.dumps(Bomb(canary)))
    judge, data = write("judge.py", LOADS), rows([{"output": 1}])
    assert evalcell("check", judge, "--sandbox", wall).code == 0
    done = evalcell("run", judge, "--data", data, "--sandbox", wall, "--json", "--out", "out.jsonl")
    assert done.code == 0, done.err
    assert label in (bomb.parent / "out.jsonl").read_text()
    assert not canary.exists()


def test_unpickled_here_it_goes_off(write, canary):
    """The control."""
    bomb = write("bomb.pkl", "")
    bomb.write_bytes(pickle.dumps(Bomb(canary)))
    subprocess.run([sys.executable, "-c", f"import pickle; pickle.load(open({str(bomb)!r}, 'rb'))"], check=True)
    assert canary.read_text() == "bitten"
