"""Layers of packages, from an index of the tests' own: made, used, listed, removed; and what is left when that fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from boxed import ask, boxed, value
from docker.errors import ImageNotFound
from packages import served

from evalcell_sandboxes import silent
from evalcell_sandboxes.caching import cache_path
from evalcell_sandboxes.container import engine as engines
from evalcell_sandboxes.container import layers, locking, presence

SHOUT = "import shout\ndef evaluate(output):\n    return shout.LOUD == output.upper()\n"
LABEL = "evalcell.layer"
OURS = {"shout", "echo-back", "shadow"}


@pytest.fixture(scope="module")
def index():
    with served() as index:
        index.wheel(
            "shout",
            "1.0",
            {"shout/__init__.py": "from echo import TEXT\nLOUD = TEXT.upper()\n"},
            requires=["echo-back"],
        )
        index.wheel("echo-back", "2.0", {"echo.py": "TEXT = 'hello'\n"})
        index.wheel("echo-back", "1.0", {"echo.py": "TEXT = 'old'\n"})
        index.wheel(
            "shadow",
            "1.0",
            {
                "json.py": "loads = dumps = None\n",
                "wire.py": "raise SystemError\n",
                "zygote.py": "raise SystemError\n",
                "sitecustomize.py": "open('/tmp/ran', 'w')\n",
                "usercustomize.py": "open('/tmp/ran', 'w')\n",
                "shadow.pth": "import os; os.environ['RAN'] = 'pth'\n",
                "shadow/__init__.py": "",
                "evaluator.py": "raise SystemError\n",
            },
        )
        index.sdist("sourceonly", "1.0", "raise SystemExit('it was built')")
        yield index  # fmt: skip


@pytest.fixture(autouse=True)
def settings(index, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("UV_", "PIP_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.address)
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")


def images(engine, **filters):
    """Layers with packages of this index and no others, and their keys: the engine is shared."""
    found = engine.api.images(filters={"label": LABEL, **filters})
    return {image["Id"]: image["Labels"][LABEL] for image in found if of_ours(image["Labels"])}


@pytest.fixture
def made(engine, container_wall):
    """The keys of the layers that this test has made; they are removed after it."""
    before = set(images(engine))
    yield lambda: [key for image, key in images(engine).items() if image not in before]
    for image in set(images(engine)) - before:
        engine.api.remove_image(image, force=True)


def of_ours(labels):
    packages = labels.get("evalcell.packages", "").split()
    return bool(packages) and {package.partition("==")[0] for package in packages} <= OURS


@pytest.fixture
def untouched(engine, made, tmp_path, monkeypatch):
    """What a build must not leave behind: a container of a process that is gone, an image without a name, a file."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    yield
    containers = engine.api.containers(all=True, filters={"label": engines.OWNER})
    assert [found["Command"] for found in containers if of_ours(found["Labels"]) and engines._is_left(found)] == []
    assert images(engine, dangling=True) == {}
    assert list(temporary.iterdir()) == []


def test_an_evaluator_with_a_package_is_locked_built_run_listed_and_removed(
    evalcell, write, rows, made, untouched, tmp_path
):
    evaluator, data = write("judge.py", SHOUT), rows([{"output": "hello"}, {"output": "no"}])
    dependency = ["--dep", "shout"]
    locked = evalcell("lock", evaluator, *dependency)
    assert locked.code == 0, locked.err
    assert "2 packages\n  echo-back==2.0\n  shout==1.0" in locked.out
    assert "127.0.0.1" not in (tmp_path / "judge.lock").read_text()

    built = evalcell("layers", "build", evaluator, *dependency)
    assert built.code == 0, built.err
    (key,) = made()
    assert built.out.startswith(key[:12])

    ran = evalcell(
        "run", evaluator, "--data", data, "--out", "-", *dependency, env={"UV_DEFAULT_INDEX": "http://127.0.0.1:1"}
    )
    assert [json.loads(line)["score"] for line in ran.out.splitlines()] == [1.0, 0.0], ran.err
    assert json.loads(ran.out.splitlines()[0])["sandbox"] == "container"

    (listed,) = [layer for layer in evalcell("layers", "list", "--json").json() if layer["key"] == key]
    assert listed["packages"] == ["echo-back==2.0", "shout==1.0"]
    assert listed["evaluators"] == ["judge.py"]
    assert key[:12] in evalcell("layers", "list").out

    removed = evalcell("layers", "rm", key[:12])
    assert removed.code == 0
    assert f"removed  {key[:12]}" in removed.out
    assert made() == []
    again = evalcell("layers", "rm", key[:12])
    assert again.code == 2
    assert f"{key[:12]!r} names no layer" in again.err


def test_a_lock_is_used_as_it_is_until_the_dependencies_change(evalcell, write, rows, made, tmp_path):
    evaluator, data = (
        write("judge.py", "import echo\ndef evaluate(output): return echo.TEXT == 'old'\n"),
        rows([{"output": 1}]),
    )
    (tmp_path / "needs.txt").write_text("# of the evaluator\necho-back<2\n")
    assert evalcell("lock", evaluator, "--dep-file", "needs.txt").code == 0
    ran = evalcell("run", evaluator, "--data", data, "--out", "-", "--dep", "echo-back<2")
    assert json.loads(ran.out)["score"] == 1.0
    stale = evalcell("run", evaluator, "--data", data, "--dep", "echo-back")
    assert stale.code == 2
    assert (
        f"The lock beside judge.py is stale: it was made for echo-back<2, and now echo-back is asked for. Run: evalcell lock {evaluator} --dep echo-back"
        in " ".join(stale.err.split())
    )


def test_a_lock_is_not_believed_about_what_it_was_made_for(evalcell, write, rows, tmp_path):
    evaluator = write("judge.py", SHOUT)
    assert evalcell("lock", evaluator, "--dep", "echo-back<2").code == 0
    lock = tmp_path / "judge.lock"
    lock.write_text(lock.read_text().replace("echo-back<2", "echo-back>=2", 1))
    done = evalcell("run", evaluator, "--data", rows([{"output": "hello"}]), "--dep", "echo-back>=2")
    assert done.code == 2
    assert "is stale: it holds no version for echo-back>=2" in " ".join(done.err.split())


def test_a_lock_that_leads_elsewhere_is_neither_read_nor_written_through(evalcell, write, rows, tmp_path):
    evaluator, victim = write("judge.py", SHOUT), write("victim", "secret\n")
    (tmp_path / "judge.lock").symlink_to(victim)
    done = evalcell("run", evaluator, "--data", rows([{"output": "hello"}]), "--dep", "shout")
    assert done.code == 2
    assert "secret" not in done.err
    assert evalcell("lock", evaluator, "--dep", "shout").code == 0
    assert victim.read_text() == "secret\n"
    assert "shout==1.0" in (tmp_path / "judge.lock").read_text()


def test_a_lock_needs_no_engine(evalcell, write, tmp_path):
    evaluator = write("judge.py", SHOUT)
    done = evalcell("lock", evaluator, "--dep", "shout", env={"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})
    assert done.code == 0, done.err


def test_prune_removes_what_was_not_used_for_long(evalcell, write, own_engine):
    """On an engine of the tests' own: on any other it would remove what people have built there."""
    evaluator, there = write("judge.py", SHOUT), {"DOCKER_HOST": own_engine.address}
    before = own_engine.images
    assert evalcell("layers", "build", evaluator, "--dep", "shout", env=there).code == 0
    (layer,) = evalcell("layers", "list", "--json", env=there).json()
    kept = evalcell("layers", "prune", "--days", "1", env=there)
    assert kept.out == "0 MB freed.\n"
    removed = evalcell("layers", "prune", "--days", "0", env=there)
    assert f"removed  {layer['key'][:12]}" in removed.out
    assert own_engine.images == before
    assert own_engine.containers == []


def test_check_says_which_packages_and_which_sandbox(evalcell, write, made):
    source = f'# /// script\n# dependencies = ["shout"]\n# ///\n{SHOUT}'
    done = evalcell("check", write("judge.py", source))
    assert done.code == 0, done.err
    assert "container" in done.out
    assert "shout" in done.out


def test_two_that_need_the_same_layer_build_it_once(write, made, untouched, tmp_path):
    write("judge.py", SHOUT)
    command = [sys.executable, "-m", "evalcell", "layers", "build", "judge.py", "--dep", "shout"]
    both = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=100) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert len(made()) == 1
    assert sum("Keeping the layer" in err for _, err in said) == 1, said


def test_a_spare_that_another_machine_has_just_removed_is_no_reason_to_fail(usual_engine, container_wall, monkeypatch):
    labels = presence._Labels("a" * 32)
    spares = [presence._Image(f"sha256:{number:064x}", 1, 0.0, number == 0, labels, ()) for number in range(3)]
    monkeypatch.setattr(presence, "_images", lambda _: {labels.key: spares})
    presence.remove_spares(usual_engine, labels.key)
    with pytest.raises(ImageNotFound):
        presence._remove_image(usual_engine, labels.key, spares[1].id)


# -- builds that fail --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "message"),
    [("sourceonly", "has no wheel that fits"), ("nowhere", "the index has no package 'nowhere'")],
)
def test_a_package_that_cannot_be_had_leaves_nothing_behind(evalcell, write, made, untouched, package, message):
    done = evalcell("layers", "build", write("judge.py", SHOUT), "--dep", "shout", "--dep", package)
    assert done.code == 2
    assert message in done.err
    assert made() == []


def test_another_file_than_was_locked_leaves_nothing_behind(evalcell, write, made, untouched, tmp_path):
    evaluator = write("judge.py", SHOUT)
    assert evalcell("lock", evaluator, "--dep", "shout").code == 0
    lock = tmp_path / "judge.lock"
    lines = lock.read_text().splitlines(keepends=True)
    lock.write_text("".join("    --hash=sha256:" + "0" * 64 + "\n" if "--hash" in line else line for line in lines))
    done = evalcell("layers", "build", evaluator, "--dep", "shout")
    assert done.code == 2
    assert "the index serves another file than the one that was locked" in done.err
    assert made() == []


def test_a_full_disk_leaves_nothing_behind_and_is_said_to_be_full(evalcell, write, made, tmp_path, index, monkeypatch):
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux can mount a small disk")
    members = [("big/data", os.urandom(6 * 1024**2))]
    index.wheel("echo-back", "3.0", {"echo.py": ""}, members=members)
    evaluator = write("judge.py", SHOUT)
    assert evalcell("lock", evaluator, "--dep", "echo-back==3.0").code == 0
    cache = tmp_path / "cache"  # other tests build layers too, in the usual one
    cache.mkdir(mode=0o700)
    (cache / "wasm").symlink_to(cache_path() / "wasm")
    monkeypatch.setenv("EVALCELL_CACHE_DIR", str(cache))
    work = presence.notes() / "work"
    work.mkdir(mode=0o700, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "none", work], check=True)
    try:
        done = evalcell("layers", "build", evaluator, "--dep", "echo-back==3.0")
        assert list(work.iterdir()) == []
    finally:
        subprocess.run(["umount", work], check=True)
        del index.files["echo_back-3.0-py3-none-any.whl"]
    assert done.code == 4
    assert "disk is full" in done.err
    assert "Traceback" not in done.err
    assert made() == []


# -- what is in a layer ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shadowed(container_wall, usual_engine, usual_base, index):
    """A session with a package that would like to be more than that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UV_DEFAULT_INDEX", index.address)
        lock = locking.lock(["shadow", "shout"], "3.11", silent)
        layers.ensure(usual_engine, usual_base, lock, "judge.py", silent)
    source = "import os, sys\nfrom pathlib import Path\ndef evaluate(output): return eval(output)\n"
    with boxed(container_wall, source, lock=lock) as session:
        yield session
    key = layers.key_of(usual_base, lock)
    presence.remove(usual_engine, key)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        pytest.param("__import__('shout').LOUD", "HELLO", id="packages-are-imported"),
        pytest.param("__import__('json').dumps([1])", "[1]", id="the-standard-library-comes-first"),
        pytest.param("os.environ.get('RAN')", None, id="pth-files-are-not-run"),
        pytest.param("[os.path.exists('/tmp/ran'), 'sitecustomize' in sys.modules]", [False, False], id="nor-is-sitecustomize"),
        pytest.param("sys.modules['evaluator'].__file__", "evaluator.py", id="the-evaluator-is-the-users"),
        pytest.param("sorted({path.read_bytes()[4] for path in Path('/opt/evalcell/packages').rglob('*.pyc')})", [1], id="compiled-by-hash-and-unchecked"),
        pytest.param("len(list(Path('/opt/evalcell/packages').rglob('*.pyc'))) >= 3", True, id="compiled-at-all"),
        pytest.param("[oct(path.stat().st_mode) for path in (Path('/opt/evalcell'), Path('/opt/evalcell/packages/echo.py'))]", ["0o40755", "0o100644"], id="readable"),
        pytest.param("[(path.stat().st_uid, int(path.stat().st_mtime)) for path in Path('/opt/evalcell/packages').glob('echo.py')]", [[0, 0]], id="of-nobody-and-no-time"),
    ],
)  # fmt: skip
def test_a_layer_is_packages_and_nothing_more(shadowed, question, answer):
    assert value(*ask(shadowed, question)) == answer


def test_the_tag_names_what_is_inside(engine, usual_base, shadowed):
    labels = engine.api.inspect_image(engine.containers.get(shadowed._box._name).image.id)["Config"]["Labels"]
    assert labels["evalcell.packages"] == "echo-back==2.0 shadow==1.0 shout==1.0"
    assert labels["evalcell.base"] == usual_base.digest
    assert Path(presence.notes() / f"{labels[LABEL]}.json").exists()
