"""Packages come from where the user has told uv or pip to look, and from nowhere that an evaluator names."""

import base64
import os

import pytest

from evalcell_sandboxes import silent
from evalcell_sandboxes.container import complaints, indexes, uv
from evalcell_sandboxes.container.locking import lock


@pytest.fixture
def files(monkeypatch, no_settings):
    """Writes settings into the empty home."""
    monkeypatch.delenv("PIP_CONFIG_FILE")

    def write(path, text):
        file = no_settings / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    return write


def variables():
    found = indexes.variables(os.environ)
    found.pop("SSL_CERT_FILE", None)
    return found


def test_pips_variable_is_honoured(index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", index.address)
    index.wheel("a")
    assert "a==1.0" in lock(["a"], "3.11", silent)


@pytest.mark.parametrize("path", [".config/pip/pip.conf", ".pip/pip.conf", "system/pip/pip.conf"])
@pytest.mark.parametrize("section", ["global", "install"])
def test_pips_files_are_honoured(index, files, path, section):
    files(path, f"[{section}]\nindex_url = {index.address}\n")
    assert variables() == {"UV_DEFAULT_INDEX": index.address}


def test_a_file_of_pip_is_enough_to_resolve(index, files):
    files(".config/pip/pip.conf", f"[global]\nindex-url = http://127.0.0.1:9\nextra-index-url =\n    {index.address}\n")
    index.wheel("a-package-of-ours")
    assert "a-package-of-ours==1.0" in lock(["a-package-of-ours"], "3.11", silent)


def test_pips_variables_come_before_its_files(files, monkeypatch):
    files(".config/pip/pip.conf", "[global]\nindex-url = http://file\n[install]\nextra-index-url = http://a http://b\n")
    monkeypatch.setenv("PIP_INDEX_URL", "http://variable")
    assert variables() == {"UV_DEFAULT_INDEX": "http://variable", "UV_INDEX": "http://a http://b"}
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert variables() == {"UV_DEFAULT_INDEX": "http://variable"}


@pytest.mark.parametrize(
    "name", ["UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"]
)
def test_where_uv_has_been_told_pips_settings_do_not_count(monkeypatch, name):
    monkeypatch.setenv("PIP_INDEX_URL", "http://pip")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv(name, "http://uv")
    assert variables() == {}
    assert not indexes.without_index(os.environ)


@pytest.mark.parametrize(
    "text", ['index-url = "http://uv"', '[[index]]\nurl = "http://uv"', '[pip]\nfind-links = ["http://uv"]']
)
@pytest.mark.parametrize("path", [".config/uv/uv.toml", "system/uv/uv.toml"])
def test_a_file_of_uv_comes_before_pips_settings_too(files, monkeypatch, path, text):
    monkeypatch.setenv("PIP_INDEX_URL", "http://pip")
    assert variables() != {}
    files(path, text)
    assert variables() == {}


def test_a_file_of_uv_that_names_no_index_changes_nothing(files, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://pip")
    files(".config/uv/uv.toml", "offline = false")
    assert variables() == {"UV_DEFAULT_INDEX": "http://pip"}


def test_the_users_own_file_of_uv_is_read(index, files):
    files(".config/uv/uv.toml", f'index-url = "{index.address}"')
    index.wheel("a")
    assert "a==1.0" in lock(["a"], "3.11", silent)


def test_directories_of_this_machine_count_only_where_they_are_all_there_is(monkeypatch, tmp_path):
    here, gone = tmp_path / "wheels", tmp_path / "gone"
    here.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", f"{here} {gone} https://host/links")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file://{here} file://{gone} https://host/simple")
    assert variables() == {"UV_INDEX": "https://host/simple", "UV_FIND_LINKS": "https://host/links"}
    monkeypatch.setenv("PIP_NO_INDEX", "true")
    assert variables() == {
        "UV_INDEX": f"file://{here} https://host/simple",
        "UV_FIND_LINKS": f"{here},https://host/links",
    }


def test_a_machine_without_an_index_resolves_from_its_own_directory(index, monkeypatch, tmp_path):
    index.wheel("a")
    for name, data in index.files.items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert "a==1.0" in lock(["a"], "3.11", silent)
    assert index.asked == []


def test_an_index_in_a_directory_that_is_gone_is_passed_over(index, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_INDEX_URL", f"file://{tmp_path}/gone")
    assert variables() == {}


def test_pips_certificates_and_proxy_are_handed_on(monkeypatch):
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CERT", "/ca.pem")
    monkeypatch.setenv("PIP_PROXY", "http://proxy")
    assert indexes.variables(os.environ) == {"SSL_CERT_FILE": "/ca.pem", "ALL_PROXY": "http://proxy"}
    monkeypatch.setenv("SSL_CERT_FILE", "/other.pem")
    monkeypatch.setenv("https_proxy", "http://other")
    assert indexes.variables(os.environ) == {}


@pytest.mark.parametrize("name", ["uv.toml", "pyproject.toml"])
def test_settings_beside_the_evaluator_are_not_read(configured, monkeypatch, tmp_path, name):
    hostile = 'index-url = "http://127.0.0.1:9/hostile"\nno-build = false\n'
    (tmp_path / name).write_text(hostile if name == "uv.toml" else f"[tool.uv]\n{hostile}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    monkeypatch.setenv("UV_INDEX_URL", configured.address)
    monkeypatch.setenv("UV_PROJECT", str(tmp_path))
    monkeypatch.setenv("UV_WORKING_DIR", str(tmp_path))
    configured.wheel("a")
    (tmp_path / name).write_text((tmp_path / name).read_text() + "nonsense = [\n")  # whoever reads it fails
    assert "a==1.0" in lock(["a"], "3.11", silent)


def test_settings_above_the_directory_that_uv_runs_in_are_not_read(configured, tmp_path):
    (tmp_path / "uv.toml").write_text("nonsense = [\n")  # the cache is below it
    configured.wheel("a")
    assert "a==1.0" in lock(["a"], "3.11", silent)


def test_credentials_reach_the_index_and_no_argument(index, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", index.address.replace("://", "://someone:s3cret@"))
    index.wheel("a")
    started = []
    real = uv.subprocess.Popen
    monkeypatch.setattr(
        uv.subprocess, "Popen", lambda command, **rest: started.append(command) or real(command, **rest)
    )
    lock(["a"], "3.11", silent)
    assert f"Basic {base64.b64encode(b'someone:s3cret').decode()}" in index.authorization
    assert "s3cret" not in str(started)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at https://user:pw@host/simple/", "at https://***@host/simple/"),
        ("https://token@host", "https://***@host"),
        ("http://u:p@ss@host:80/x and https://u:p@h", "http://***@host:80/x and https://***@h"),
        ("https://host/a@b", "https://host/a@b"),
        ("a==1 @ home", "a==1 @ home"),
    ],
)
def test_credentials_in_messages_are_masked(text, shown):
    assert complaints.masked(text) == shown
    assert shown in str(complaints.error(f"error: {text}", "resolve a"))


def test_a_full_disk_has_its_own_sentence():
    found = complaints.error("error: Failed to install\n  cause: No space left on device (os error 28)", "install a")
    assert "the disk is full" in str(found)
    assert "EVALCELL_CACHE_DIR" in str(found)
