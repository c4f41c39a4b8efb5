"""What an evaluator may ask for by name, and all that is refused before any installer runs."""

import subprocess
import sys

import pytest

from evalcell_sandboxes.requirements import applying, requirement, requirements


@pytest.mark.parametrize(
    ("line", "normal"),
    [
        ("numpy", "numpy"),
        ("Scikit_Learn >= 1.5", "scikit-learn>=1.5"),
        ("zope.interface==5.*", "zope-interface==5.*"),
        ("x[B_c, a] (>=1, <2)", "x[a,b-c]<2,>=1"),
        (" numpy ; python_version < '3.12'", 'numpy; python_version < "3.12"'),
        ("numpy; python_version in '3.11, 3.12'", 'numpy; python_version in "3.11, 3.12"'),
        ("torch==2.13.0+cpu", "torch==2.13.0+cpu"),
        ("x~=1.4.2,!=1.4.5", "x!=1.4.5,~=1.4.2"),
    ],
)
def test_a_requirement_by_name_is_given_in_its_normal_form(line, normal):
    assert requirement(line) == normal
    assert requirement(normal) == normal


REFUSED = [
    pytest.param("pkg @ https://host/pkg.whl", "address", id="url"),
    pytest.param("pkg@file:///x", "address", id="file-url"),
    pytest.param("pkg @ ./x", "address", id="relative-url"),
    pytest.param("git+https://host/repo", "address", id="git"),
    pytest.param("git+ssh:repo", "address", id="git-ssh"),
    pytest.param("https://host/pkg-1.0-py3-none-any.whl", "address", id="bare-url"),
    pytest.param("file:x", "address", id="file"),
    pytest.param("./x", "path", id="path-here"),
    pytest.param("../x", "path", id="path-above"),
    pytest.param("/x", "path", id="path-absolute"),
    pytest.param("~/x", "path", id="path-home"),
    pytest.param(".", "path", id="dot"),
    pytest.param("x.whl", "path", id="wheel"),
    pytest.param("X.WHL[extra]", "path", id="wheel-with-extra"),
    pytest.param("x-1.0.tar.gz", "path", id="archive"),
    pytest.param("sub/dir", "path", id="path-below"),
    pytest.param("--index-url=https://host", "option", id="index-url"),
    pytest.param("-r other.txt", "option", id="include"),
    pytest.param("-e .", "option", id="editable"),
    pytest.param("  -c other.txt", "option", id="indented-option"),
    pytest.param("numpy --hash=sha256:00", "option", id="hash"),
    pytest.param("numpy -r other.txt", "option", id="option-behind"),
    pytest.param("numpy\n--index-url=https://host", "line break", id="newline"),
    pytest.param("numpy\r-r x", "line break", id="carriage-return"),
    pytest.param("numpy\x0b-r x", "line break", id="vertical-tab"),
    pytest.param("numpy\x00", "line break", id="nul"),
    pytest.param("numpy\t>=1", "line break", id="tab"),
    pytest.param("numpy\u2028-r x", "plain ASCII", id="line-separator"),
    pytest.param("numpy\u00a0>=1", "plain ASCII", id="no-break-space"),
    pytest.param("nump\u0443", "plain ASCII", id="look-alike"),
    pytest.param("numpy \\", "backslash", id="continuation"),
    pytest.param("numpy # why", "comment", id="comment"),
    pytest.param("${HOME}", "variable", id="variable"),
    pytest.param("numpy==${X}", "variable", id="variable-in-version"),
    pytest.param("numpy; platform_version == '%X%'", "variable", id="percent-variable"),
    pytest.param("n" * 501, "501 characters", id="long"),
    pytest.param("", "empty", id="empty"),
    pytest.param("   ", "empty", id="blank"),
    pytest.param("numpy scipy", "not a requirement", id="two"),
    pytest.param("numpy>=", "not a requirement", id="no-version"),
    pytest.param("numpy=1", "not a requirement", id="one-equals-sign"),
    pytest.param("numpy; nonsense == '1'", "not a requirement", id="unknown-marker"),
    pytest.param("x; platform_version == 'a\"b'", "quote within quotes", id="quotes"),
]


@pytest.mark.parametrize(("line", "why"), REFUSED)
def test_anything_else_is_refused_with_a_reason_and_an_example(line, why):
    with pytest.raises(ValueError, match=why) as caught:
        requirement(line)
    assert "'scikit-learn>=1.5'" in str(caught.value)
    assert len(str(caught.value)) < 700


def test_a_text_holds_one_requirement_a_line_and_comments():
    assert requirements("\ufeff# for scores\r\nNumPy>=2  # fast\r\n\r\n\tscipy\n") == ("numpy>=2", "scipy")
    assert requirements("") == ()


@pytest.mark.parametrize("bad", ["-r other.txt", "numpy#1", "scipy \\", "a\rb", "a\x0cb", "pkg @ https://host/#egg=x"])
def test_a_line_of_a_text_that_is_none_is_named_by_its_number(bad):
    with pytest.raises(ValueError, match="^Line 3: "):
        requirements(f"numpy\n\n{bad}\nscipy")


@pytest.mark.parametrize(
    ("marker", "holds"),
    [
        ("sys_platform == 'linux'", True),
        ("sys_platform == 'darwin'", False),
        ("platform_system == 'Windows'", False),
        ("os_name == 'posix'", True),
        ("python_version < '3.12'", False),
        ("python_version == '3.12'", True),
        ("python_full_version >= '3.12.4'", True),
        ("python_full_version >= '3.12.5'", False),
        ("platform_python_implementation == 'PyPy'", False),
        ("implementation_name == 'cpython'", True),
        ("extra == 'test'", False),
    ],
)
def test_markers_are_read_for_linux_and_the_given_python(marker, holds, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("os.name", "nt")
    line = requirement(f"numpy; {marker}")
    assert applying([line, "scipy"], "3.12.4") == ((line, "scipy") if holds else ("scipy",))


def test_a_machine_is_called_as_linux_calls_it(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    assert applying(["numpy; platform_machine == 'aarch64'"], "3.12") != ()


def test_importing_the_module_does_not_import_packaging():
    code = "import sys, evalcell_sandboxes.requirements; print([name for name in sys.modules if 'packaging' in name])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
