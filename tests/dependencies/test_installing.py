"""A lock becomes a directory of files, every one as locked, and nothing else happens on the host."""

import os
import stat
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from evalcell_sandboxes import SandboxUnavailable, silent
from evalcell_sandboxes.caching import cache_dir
from evalcell_sandboxes.container import uv
from evalcell_sandboxes.container.installing import install, platform_of
from evalcell_sandboxes.container.locking import lock
from evalcell_sandboxes.container.trees import Growth, discard, weight
from evalcell_sandboxes.errors import DependencyProblem

PLATFORM = "x86_64-manylinux_2_28"
MIB = 1024**2


@pytest.fixture
def target(tmp_path):
    return tmp_path / "outside" / "target"


@pytest.fixture
def installed(target):
    """Installs a lock and gives the size."""
    target.parent.mkdir()

    def installed(text, **options):
        return install(text, target, **{"python": "3.11", "platform": PLATFORM, "progress": silent, **options})

    return installed


@pytest.fixture
def careless(no_settings):
    """Writes the user's own settings of uv."""

    def write(text):
        file = no_settings / ".config" / "uv" / "uv.toml"
        file.parent.mkdir(parents=True)
        file.write_text(text)

    return write


def tree(root):
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def member(name, mode):
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = mode << 16
    return info


def test_locked_packages_are_installed(configured, installed, target):
    configured.wheel("top", requires=["below"])
    configured.wheel("below", "2.0", {"below.py": "VALUE = 7\n"})
    steps = []
    size = installed(lock(["top"], "3.11", silent), progress=lambda step, fraction=None: steps.append(step))
    assert (target / "below.py").read_text() == "VALUE = 7\n"
    assert (target / "top" / "__init__.py").exists()
    assert size == sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    assert steps == ["Installing below==2.0, top==1.0"]
    assert not (target / ".lock").exists()


def test_large_downloads_are_told_with_their_size(configured, installed):
    configured.wheel("large", members=[("large/data", os.urandom(2 * MIB))])
    steps = []
    installed(lock(["large"], "3.11", silent), progress=lambda step, fraction=None: steps.append(step))
    assert steps[1:] == ["Downloading large (2.0 MiB)"]


def test_wheels_are_chosen_for_the_containers_python_and_platform(configured, installed, target):
    for tag in ("cp311-cp311-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_28_aarch64", "cp312-cp312-win_amd64"):
        configured.wheel("native", files={"tag.txt": tag}, tag=tag)
    made = lock(["native"], "3.11", silent)
    installed(made, python="3.12.4", platform="aarch64-manylinux_2_36")
    assert (target / "tag.txt").read_text() == "cp312-cp312-manylinux_2_28_aarch64"


@pytest.mark.parametrize("platform", ["x86_64-manylinux_2_17", "x86_64-unknown-linux-musl"])
def test_a_package_without_a_wheel_for_the_platform_is_refused(configured, installed, target, platform):
    configured.wheel("native", tag="cp311-cp311-manylinux_2_28_x86_64")
    with pytest.raises(DependencyProblem, match="'native' has no wheel that fits"):
        installed(lock(["native"], "3.11", silent), platform=platform)
    assert not target.exists()


def test_packages_for_other_platforms_are_left_out(configured, installed, target):
    configured.wheel("top", requires=["windows; sys_platform == 'win32'", "linux; sys_platform == 'linux'"])
    configured.wheel("windows")
    configured.wheel("linux")
    installed(lock(["top"], "3.11", silent))
    assert (target / "linux").exists()
    assert not (target / "windows").exists()


@pytest.mark.parametrize("advertised", [True, False])
def test_other_bytes_than_were_locked_are_never_installed(
    configured, installed, target, careless, advertised, monkeypatch
):
    configured.wheel("a")
    made = lock(["a"], "3.11", silent)
    monkeypatch.setenv("UV_NO_VERIFY_HASHES", "1")
    careless("[pip]\nverify-hashes = false\nrequire-hashes = false\n")
    honest = dict(configured.advertised)
    configured.wheel("a", files={"a/__init__.py": "HOSTILE = True\n"})
    if not advertised:  # the page lies about it too
        configured.advertised = honest
    with pytest.raises(DependencyProblem, match="serves another file than the one that was locked"):
        installed(made)
    assert not target.exists()


def test_nothing_is_installed_that_is_not_in_the_lock(configured, installed, target, locked):
    configured.wheel("below")
    installed(locked(top=configured.wheel("top", requires=["below"])))
    assert (target / "top").exists()
    assert not (target / "below").exists()


def test_a_hostile_lock_is_refused_before_anything_is_asked(configured, installed, target, locked):
    made = locked(a=configured.wheel("a"))
    with pytest.raises(ValueError, match="Line 4 of the lock"):
        installed(f"{made}--index-url http://127.0.0.1:9\n")
    assert configured.asked == []
    assert not target.exists()


def test_a_locked_source_archive_is_refused_and_its_script_never_runs(configured, installed, target, locked, tmp_path):
    canary = tmp_path / "canary"
    digest = configured.sdist("sourced", "1.0", f"open({str(canary)!r}, 'w').close()\n")
    with pytest.raises(DependencyProblem, match="'sourced' has no wheel"):
        installed(locked(sourced=digest))
    assert not canary.exists()
    assert not target.exists()


def test_no_code_of_a_package_runs_on_the_host(configured, installed, target, tmp_path):
    """The same package is run on purpose at the end, so that a canary that cannot sing is noticed."""
    canary = tmp_path / "canary"
    sing = f"open({str(canary)!r}, 'a').write(__name__)\n"
    names = ("sitecustomize.py", "usercustomize.py", "json.py", "evil/__init__.py", "setup.py", "evil/__main__.py")
    script = "evil-1.0.data/scripts/evil-script"
    configured.wheel(
        "evil",
        files={**dict.fromkeys(names, sing), "evil.pth": f"import os; {sing}", script: f"#!python\n{sing}"},
    )
    made = lock(["evil"], "3.11", silent)
    installed(made)
    subprocess.run([sys.executable, "-c", "import json"], cwd=tmp_path, check=True)
    discard(target)
    installed(made)  # a second time, with everything in the cache
    assert set(names) | {"evil.pth"} <= tree(target)
    assert not canary.exists()
    subprocess.run([sys.executable, "-c", "pass"], env={"PYTHONPATH": str(target)}, check=True)
    assert canary.exists()


def test_a_package_that_shadows_the_standard_library_stays_in_its_directory(configured, installed, target):
    configured.wheel("shadow", files={"json/__init__.py": "raise SystemExit('shadowed')\n"})
    installed(lock(["shadow"], "3.11", silent))
    assert (target / "json" / "__init__.py").exists()
    done = subprocess.run([sys.executable, "-c", "import json; print(json.dumps(1))"], capture_output=True, check=True)
    assert done.stdout == b"1\n"


INFO = "evil-1.0.dist-info/entry_points.txt"


@pytest.mark.parametrize(
    "path",
    ["../escaped", "evil/../../escaped", "{outside}/escaped", "evil-1.0.data/data/../../../escaped", "..\\escaped"],
)
def test_members_that_point_elsewhere_end_nowhere_else(configured, installed, target, locked, tmp_path, path):
    path = path.format(outside=target.parent)
    digest = configured.wheel("evil", members=[(path, b"x")])
    before = {found for found in tmp_path.rglob("*") if tmp_path / "cache" not in found.parents}
    try:
        installed(locked(evil=digest))
    except DependencyProblem:
        assert not target.exists()
    after = {found for found in tmp_path.rglob("*") if tmp_path / "cache" not in found.parents}
    outside = {found for found in after - before if target != found and target not in found.parents}
    assert outside <= {tmp_path / "cache"}
    kept = {found for found in (tmp_path / "cache").rglob("*escaped") if found.name == "escaped"}
    assert all("archive-v0" in found.parts for found in kept)


@pytest.mark.parametrize("name", ["../../escaped", "/escaped", "../evil/__init__.py"])
def test_scripts_that_point_elsewhere_are_refused(configured, installed, target, locked, tmp_path, name):
    entry = f"[console_scripts]\n{name} = evil:main\n".encode()
    digest = configured.wheel("evil", members=[(INFO, entry)])
    with pytest.raises(DependencyProblem, match="scripts directory"):
        installed(locked(evil=digest))
    assert not list(tmp_path.rglob("escaped"))
    assert not target.exists()


def test_console_scripts_are_dropped(configured, installed, target, locked):
    digest = configured.wheel(
        "tool", members=[("tool-1.0.dist-info/entry_points.txt", b"[console_scripts]\nt = tool:m\n")]
    )
    installed(locked(tool=digest))
    assert (target / "tool").exists()
    assert not (target / "bin").exists()


def test_no_link_special_file_or_odd_mode_comes_out(configured, installed, target, locked):
    odd = [
        (member("evil/link", stat.S_IFLNK | 0o777), b"/etc/passwd"),
        (member("evil/pipe", stat.S_IFIFO | 0o644), b""),
        (member("evil/setuid", stat.S_IFREG | 0o6755), b"x"),
        (member("evil/hidden", stat.S_IFREG | 0o600), b"x"),
        (member("evil/open", stat.S_IFREG | 0o666), b"x"),
    ]
    mask = os.umask(0o077)
    try:
        installed(locked(evil=configured.wheel("evil", members=odd)))
    finally:
        os.umask(mask)
    assert (target / "evil" / "link").read_bytes() == b"/etc/passwd"
    modes = {stat.filemode(path.lstat().st_mode) for path in [target, *target.rglob("*")]}
    assert modes <= {"drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x"}


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe"])
def test_a_link_or_special_file_that_uv_let_through_is_refused(
    configured, installed, target, locked, monkeypatch, kind
):
    """uv makes none today. Should it ever, they do not get into a layer."""
    real = uv.Workplace.run

    def run(place, *arguments, **options):
        real(place, *arguments, **options)
        odd = target / "a" / "odd"
        os.mkfifo(odd) if kind == "pipe" else odd.symlink_to("/etc" if kind == "link" else "/nowhere")
        return ""

    monkeypatch.setattr(uv.Workplace, "run", run)
    with pytest.raises(DependencyProblem, match="'a/odd', which is a link or a special file"):
        installed(locked(a=configured.wheel("a")))
    assert not target.exists()
    assert Path("/etc").exists()


def test_directories_nested_without_end_are_refused_and_removed(configured, installed, target, locked):
    digest = configured.wheel("deep", members=[("deep/" + "d/" * 1200 + "x", b"")])
    try:
        with pytest.raises(DependencyProblem, match="lies more than 64 directories deep"):
            installed(locked(deep=digest))
        assert not target.exists()
    finally:
        discard(cache_dir())  # or whoever clears the temporary files fails on it


@pytest.mark.parametrize(
    "sizes", [pytest.param([200 * MIB], id="one-file"), pytest.param([2 * MIB] * 100, id="many-files")]
)
def test_an_archive_without_end_is_stopped(configured, installed, target, locked, sizes):
    members = [(f"bomb/{number}", bytes(size)) for number, size in enumerate(sizes)]
    digest = configured.wheel("bomb", members=members)
    assert len(configured.files["bomb-1.0-py3-none-any.whl"]) < 3 * MIB
    with pytest.raises(DependencyProblem, match="weigh more than 20 MiB"):
        installed(locked(bomb=digest), most_bytes=20 * MIB)
    assert not target.exists()
    assert weight(cache_dir()) < MIB


def test_an_archive_of_endless_empty_files_is_stopped(configured, installed, target, locked):
    digest = configured.wheel("bomb", members=[(f"bomb/{number}", b"") for number in range(3000)])
    with pytest.raises(DependencyProblem, match="weigh more than 1 MiB"):
        installed(locked(bomb=digest), most_bytes=MIB)
    assert not target.exists()


def test_what_was_cached_before_does_not_count(configured, installed, target, locked):
    large = locked(large=configured.wheel("large", members=[("large/data", bytes(30 * MIB))]))
    installed(large)
    discard(target)
    small = locked(small=configured.wheel("small"))
    assert weight(cache_dir()) > 20 * MIB
    installed(small, most_bytes=20 * MIB)
    discard(target)
    with pytest.raises(DependencyProblem, match="weigh more than 20 MiB"):
        installed(large, most_bytes=20 * MIB)


def test_the_watch_leaves_out_what_was_there_and_sees_what_comes(tmp_path):
    (tmp_path / "bucket" / "old").mkdir(parents=True)
    (tmp_path / "bucket" / "old" / "file").write_bytes(bytes(5000))
    growth = Growth([tmp_path])
    assert growth.weight() < 5000
    (tmp_path / "bucket" / "new").mkdir()
    (tmp_path / "bucket" / "new" / "file").write_bytes(bytes(9000))
    assert 9000 < growth.weight() < 14000


def test_packages_are_copied_out_of_a_cache_of_our_own(configured, installed, target, locked, monkeypatch, tmp_path):
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "the-users"))
    monkeypatch.setenv("UV_LINK_MODE", "hardlink")
    installed(locked(a=configured.wheel("a")))
    assert not (tmp_path / "the-users").exists()
    assert {path.stat().st_nlink for path in target.rglob("*") if path.is_file()} == {1}
    assert [path.name for path in (cache_dir() / "uv").iterdir() if path.name.startswith("work-")] == []


def test_nothing_is_compiled_or_linked_on_the_host_whatever_the_user_has_set(
    configured, installed, target, locked, careless, monkeypatch
):
    careless('[pip]\ncompile-bytecode = true\nlink-mode = "symlink"\nno-binary = [":none:"]\n')
    monkeypatch.setenv("UV_COMPILE_BYTECODE", "1")
    installed(locked(a=configured.wheel("a")))
    assert "a/__init__.py" in tree(target)
    assert not list(target.rglob("*.pyc"))


def test_a_directory_that_holds_something_is_left_alone(configured, installed, target, locked):
    target.mkdir()
    (target / "mine").touch()
    with pytest.raises(ValueError, match="holds something"):
        installed(locked(a=configured.wheel("a")))
    assert (target / "mine").exists()


def test_an_interrupted_installation_leaves_no_process_and_no_directory(
    configured, installed, target, locked, monkeypatch
):
    digest = configured.wheel("a")
    monkeypatch.setattr(configured, "answer", lambda path: configured.hang())
    started = []
    real = uv.subprocess.Popen
    monkeypatch.setattr(uv.subprocess, "Popen", lambda *a, **k: started.append(real(*a, **k)) or started[-1])

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(uv, "_look", interrupted)
    with pytest.raises(KeyboardInterrupt):
        installed(locked(a=digest))
    assert started[0].returncode is not None
    assert not target.exists()


def test_what_a_killed_run_left_behind_is_cleared_by_the_next(configured, installed, locked):
    left = [cache_dir() / "uv" / "work-1" / "file", cache_dir() / "uv" / "cache" / ".tmp1" / "file"]
    for path in left:
        path.parent.mkdir(parents=True)
        path.touch()
    (cache_dir() / "uv").chmod(0o700)
    installed(locked(a=configured.wheel("a")))
    assert not any(path.parent.exists() for path in left)


def test_two_installations_take_turns(configured, locked, tmp_path):
    made = locked(a=configured.wheel("a"))
    steps = []
    with uv.workplace(silent):
        waiting = threading.Thread(
            target=install,
            args=(made, tmp_path / "one"),
            kwargs={
                "python": "3.11",
                "platform": PLATFORM,
                "progress": lambda step, fraction=None: steps.append(step),
            },
        )
        waiting.start()
        deadline = time.monotonic() + 10
        while not steps and time.monotonic() < deadline:
            time.sleep(0.01)
        assert steps == ["Waiting for another installation to end"]
    waiting.join(30)
    assert (tmp_path / "one" / "a").exists()


@pytest.mark.parametrize(
    ("machine", "libc", "platform"),
    [
        ("x86_64", "glibc 2.36", "x86_64-manylinux_2_36"),
        ("x86_64", "glibc 2.30", "x86_64-manylinux_2_28"),
        ("amd64", "glibc 2.41", "x86_64-manylinux_2_40"),
        ("aarch64", "glibc 2.17", "aarch64-manylinux_2_17"),
        ("arm64", "glibc 2.31-13", "aarch64-manylinux_2_31"),
        ("x86_64", "musl 1.2.5", "x86_64-unknown-linux-musl"),
        ("arm64", "musl 1.2", "aarch64-unknown-linux-musl"),
    ],
)
def test_the_platform_is_the_newest_that_runs_there_and_uv_knows_it(machine, libc, platform):
    assert platform_of(machine, libc) == platform
    shown = subprocess.run([uv.binary(), "pip", "install", "--help"], capture_output=True, text=True, check=True).stdout
    assert platform in shown.replace(",", " ").split()


@pytest.mark.parametrize(
    ("machine", "libc"),
    [
        ("x86_64", "glibc 2.12"),
        ("x86_64", "musl 1.1.24"),
        ("s390x", "glibc 2.36"),
        ("x86_64", ""),
        ("x86_64", "bionic 1.0"),
    ],
)
def test_a_platform_without_packages_is_unavailable(machine, libc):
    with pytest.raises(SandboxUnavailable, match="there are no packages for the machine"):
        platform_of(machine, libc)
