"""Requirements become a lock: exact, hashed, without an address, and read strictly when it comes back."""

import sys

import pytest

from evalcell_sandboxes import SandboxUnavailable, silent
from evalcell_sandboxes.container import locking
from evalcell_sandboxes.container.locking import MadeFor, check, lock, made_for, packages
from evalcell_sandboxes.errors import DependencyProblem

HASH = "0" * 64
ENTRY = f"numpy==2.4.6 \\\n    --hash=sha256:{HASH}\n"


def test_a_lock_holds_exact_versions_with_hashes_and_no_address(configured):
    top = configured.wheel("top-one", requires=["below>=1", "elsewhere; sys_platform == 'win32'"])
    below = configured.wheel("below", "1.5")
    elsewhere = configured.wheel("elsewhere")
    steps = []
    made = lock(["Top_One>=1"], "3.11.7", lambda step, fraction=None: steps.append(step))
    assert made == (
        "# evalcell lock 1: python >= 3.11: top-one>=1\n"
        f"below==1.5 \\\n    --hash=sha256:{below}\n"
        f"elsewhere==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:{elsewhere}\n"
        f"top-one==1.0 \\\n    --hash=sha256:{top}\n"
    )
    check(made)
    assert packages(made) == ("below==1.5", "elsewhere==1.0", "top-one==1.0")
    assert steps == ["Resolving top-one"]


def test_the_same_requirements_in_another_order_give_the_same_lock(configured):
    for name in ("a", "b", "c"):
        configured.wheel(name)
    assert lock(["c", "a>=1", "b", "a>=1"], "3.11", silent) == lock(["b", "A >=1", "c"], "3.11.2", silent)


def test_a_lock_tells_what_it_was_made_for(configured):
    configured.wheel("a")
    configured.wheel("b")
    asked = ["b; python_version in '3.11, 3.12'", "a[x,y]>=1,<2"]
    made = lock(asked, "3.11", silent)
    assert made_for(made) == MadeFor("3.11", ("a[x,y]<2,>=1", 'b; python_version in "3.11, 3.12"'))
    assert made_for(made) == locking.wanted(asked, "3.11.9")
    assert made_for(made) != locking.wanted(asked, "3.12")
    check(made)


def test_what_steers_the_installer_does_so_also_where_it_is_granted_to_code(configured):
    """Else packages would come from somewhere else than the operator has said."""
    wheel = configured.wheel("private-package")
    made = lock(["private-package"], "3.11", silent, withheld=["UV_DEFAULT_INDEX", "HOME", "https_proxy", "TOKEN"])
    assert wheel in made


@pytest.mark.parametrize(
    "header",
    [
        "",
        "# a comment",
        "# evalcell lock 2: python >= 3.11: numpy",
        "# evalcell lock 1: python >= 3.11: ",
        "# evalcell lock 1: python >= 3.11: numpy,scipy @ https://host",
        "# evalcell lock 1: python >= 3.11: NumPy",
        "# evalcell lock 1: python >= 3.11: scipy, numpy",
        "# evalcell lock 1: python >= 3.11: numpy \\",
    ],
)
def test_a_first_line_that_no_lock_would_have_says_nothing(header):
    assert made_for(f"{header}\n{ENTRY}") is None
    with pytest.raises(ValueError, match="Line 1 of the lock"):
        check(f"{header}\n{ENTRY}")


def test_a_lock_without_its_first_line_and_with_markers_is_accepted():
    check(ENTRY)
    check(ENTRY.replace(" \\", " ; python_full_version >= '3.12' and sys_platform != 'win32' \\", 1))
    check(ENTRY + f"torch==2.13.0+cpu \\\n    --hash=sha256:{HASH} \\\n    --hash=sha256:{HASH}")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param(f"--index-url https://host\n{ENTRY}", 1, id="index"),
        pytest.param(f"{ENTRY}--extra-index-url=https://host\n", 3, id="index-behind"),
        pytest.param(f"{ENTRY}-r other.txt\n", 3, id="include"),
        pytest.param(f"{ENTRY}-c other.txt\n", 3, id="constraint"),
        pytest.param(f"{ENTRY}-e .\n", 3, id="editable"),
        pytest.param(f"{ENTRY}--no-binary :all:\n", 3, id="source"),
        pytest.param(f"{ENTRY}--find-links /x\n", 3, id="links"),
        pytest.param(f"x @ https://host/x.whl \\\n    --hash=sha256:{HASH}\n", 1, id="address"),
        pytest.param(f"https://host/x.whl \\\n    --hash=sha256:{HASH}\n", 1, id="bare-address"),
        pytest.param(f"./x.whl \\\n    --hash=sha256:{HASH}\n", 1, id="path"),
        pytest.param("numpy==2.4.6\n", 1, id="no-hash"),
        pytest.param(f"numpy==2.4.6\nscipy==1.0 \\\n    --hash=sha256:{HASH}\n", 1, id="first-without-hash"),
        pytest.param(f"numpy==2.4.6 \\\nscipy==1.0 \\\n    --hash=sha256:{HASH}\n", 2, id="joined"),
        pytest.param(f"numpy==2.4.6 \\\n    --index-url=https://host \\\n    --hash=sha256:{HASH}\n", 2, id="inside"),
        pytest.param(f"numpy==2.4.6 \\\n    --hash=md5:{HASH}\n", 2, id="weak-hash"),
        pytest.param("numpy==2.4.6 \\\n    --hash=sha256:00\n", 2, id="short-hash"),
        pytest.param(f"numpy==2.4.6 \\\n    --hash=sha256:{HASH} -r x\n", 2, id="behind-the-hash"),
        pytest.param(f"numpy>=2 \\\n    --hash=sha256:{HASH}\n", 1, id="range"),
        pytest.param(f"numpy==2.* \\\n    --hash=sha256:{HASH}\n", 1, id="wildcard"),
        pytest.param(f"numpy==.. \\\n    --hash=sha256:{HASH}\n", 1, id="no-version"),
        pytest.param(f"numpy===2 \\\n    --hash=sha256:{HASH}\n", 1, id="arbitrary-equality"),
        pytest.param(f"NumPy==2 \\\n    --hash=sha256:{HASH}\n", 1, id="name-not-normal"),
        pytest.param(f"numpy[x]==2 \\\n    --hash=sha256:{HASH}\n", 1, id="extra"),
        pytest.param(f"numpy==2 ; nonsense == '1' \\\n    --hash=sha256:{HASH}\n", 1, id="marker"),
        pytest.param(f"numpy==2 ; os_name == ' --no-deps' \\\n    --hash=sha256:{HASH}\n", 1, id="option-in-marker"),
        pytest.param(f"numpy==2 ; os_name == '${{X}}' \\\n    --hash=sha256:{HASH}\n", 1, id="variable"),
        pytest.param(f"numpy==2 # x \\\n    --hash=sha256:{HASH}\n", 1, id="comment-behind"),
        pytest.param(f"# comment\n{ENTRY}", 1, id="comment"),
        pytest.param(f"{ENTRY}\n{ENTRY}", 3, id="blank-line"),
        pytest.param(ENTRY.replace("\n", "\r\n"), 1, id="carriage-returns"),
        pytest.param(ENTRY.replace("    --hash", "\t--hash"), 2, id="tab"),
        pytest.param(ENTRY.replace("numpy", "num\u2028py"), 1, id="line-separator"),
        pytest.param(f"numpy==\u0662 \\\n    --hash=sha256:{HASH}\n", 1, id="arabic-digit"),
        pytest.param("", 1, id="empty"),
    ],
)
def test_a_hostile_lock_is_refused_by_its_line(text, number):
    with pytest.raises(ValueError, match=f"Line {number} of the lock is .*evalcell lock"):
        check(text)


@pytest.mark.parametrize("text", ["numpy==2.4.6 \\\n", ENTRY.rstrip() + " \\\n"])
def test_a_lock_that_ends_in_the_middle_is_refused(text):
    with pytest.raises(ValueError, match="The lock ends with"):
        check(text)


def test_a_lock_without_end_is_refused_unread():
    with pytest.raises(ValueError, match="characters long"):
        check(ENTRY * 200_000)


@pytest.mark.parametrize(
    "line",
    ["-r other.txt", "--index-url=http://host", "a\n--index-url=http://host", "a @ http://host/a.whl", "./a", "a\\"],
)
def test_what_is_no_name_is_refused_before_anything_is_asked(configured, line):
    configured.wheel("a")
    with pytest.raises(ValueError, match="scikit-learn>=1.5"):
        lock(["a", line], "3.11", silent)
    assert configured.asked == []
    lock(["a"], "3.11", silent)
    assert configured.asked != []


def test_nothing_to_lock_is_refused():
    with pytest.raises(ValueError, match="no requirements"):
        lock([], "3.11", silent)


def test_an_unknown_package_is_named(configured):
    with pytest.raises(DependencyProblem, match="Could not resolve nmupy: the index has no package 'nmupy'"):
        lock(["nmupy"], "3.11", silent)


def test_requirements_that_contradict_each_other_are_explained(configured):
    configured.wheel("a", requires=["c<2"])
    configured.wheel("b", requires=["c>=2"])
    configured.wheel("c", "1.0")
    configured.wheel("c", "2.0")
    with pytest.raises(DependencyProblem, match=r"no versions fit together(.|\n)*c<2") as caught:
        lock(["a", "b"], "3.11", silent)
    assert "hint:" not in str(caught.value)


@pytest.mark.parametrize("asked", ["sourced", "top"])
def test_a_package_without_wheels_is_refused_and_its_script_never_runs(configured, tmp_path, asked):
    canary = tmp_path / "canary"
    configured.sdist("sourced", "1.0", f"open({str(canary)!r}, 'w').close()\n")
    configured.wheel("top", requires=["sourced"])
    with pytest.raises(DependencyProblem, match="'sourced' has no wheel"):
        lock([asked], "3.11", silent)
    assert not canary.exists()


def test_an_index_that_cannot_be_reached_is_unavailable_and_later_not_needed(monkeypatch):
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://someone:secret@127.0.0.1:9/simple")
    with pytest.raises(SandboxUnavailable, match="index cannot be reached(.|\n)*nothing needs the network") as caught:
        lock(["a"], "3.11", silent)
    assert "secret" not in str(caught.value)


def test_an_index_that_wants_other_credentials_is_unavailable(configured, monkeypatch):
    monkeypatch.setattr(configured, "answer", lambda path: (401, "text/html", b""))
    with pytest.raises(SandboxUnavailable, match="refused the credentials"):
        lock(["a"], "3.11", silent)


def test_without_uv_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "uv", None)
    with pytest.raises(SandboxUnavailable, match=r"pip install 'evalcell\[container\]'"):
        lock(["a"], "3.11", silent)


def test_a_resolution_that_hangs_is_stopped(configured, monkeypatch):
    monkeypatch.setattr(configured, "answer", lambda path: configured.hang())
    monkeypatch.setattr(locking, "_RESOLVE_SECONDS", 0.5)
    with pytest.raises(DependencyProblem, match="took too long"):
        lock(["a"], "3.11", silent)


def test_an_index_without_hashes_is_read_and_the_files_are_hashed_here(configured):
    found = configured.wheel("a")
    configured.advertised.clear()
    assert f"a==1.0 \\\n    --hash=sha256:{found}\n" in lock(["a"], "3.11", silent)


def test_an_archive_without_end_is_stopped_while_it_is_resolved(configured):
    configured.wheel("bomb", members=[(f"bomb/{number}", bytes(1_000_000)) for number in range(50)])
    configured.advertised.clear()  # so that uv must fetch it all
    with pytest.raises(DependencyProblem, match="weigh more than 10 MiB"):
        lock(["bomb"], "3.11", silent, most_bytes=10 * 1024**2)


def test_without_a_network_what_is_missing_is_unavailable(configured, monkeypatch):
    monkeypatch.setenv("UV_OFFLINE", "1")
    with pytest.raises(SandboxUnavailable, match="index cannot be reached"):
        lock(["a"], "3.11", silent)
