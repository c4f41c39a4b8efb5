"""This host's Python, packed, is a Python for containers."""

import json
import os
import platform
import secrets
import sys
import tarfile
from pathlib import Path

import pytest
from watching import Watch

from evalcell_sandboxes import SandboxUnavailable, silent
from evalcell_sandboxes.container import libraries, packing


def test_packing_the_same_python_again_gives_the_same_bytes_whatever_the_umask(archive, tmp_path):
    told = []
    mask = os.umask(0o077)
    try:
        again = packing.pack(tmp_path / "again.tar", lambda step, fraction=None: told.append((step, fraction)))
    finally:
        os.umask(mask)
    path, packed = archive
    assert again == packed
    assert (tmp_path / "again.tar").read_bytes() == path.read_bytes()
    assert [fraction for _, fraction in told] == [0.0, 0.2, 0.9]


def test_what_was_packed_says_which_python_it_is(archive):
    assert archive[1].python == platform.python_version()
    assert len(archive[1].digest) == 64


def test_the_key_is_stable_and_changes_with_the_interpreter(monkeypatch):
    key = packing.key()
    assert packing.key() == key
    monkeypatch.setattr(sys, "version", "3.99.0")
    assert packing.key() != key


def test_nothing_in_the_archive_tells_whose_host_it_was(archive):
    with tarfile.open(archive[0]) as members:
        for member in members:
            assert (member.uid, member.gid, member.uname, member.gname, member.mtime) == (0, 0, "", "", 0), member.name
            assert not member.isdir() or member.mode in {0o755, 0o1777}, member.name
            assert "site-packages/" not in member.name
            assert "dist-packages" not in member.name


@pytest.mark.skipif(sys.base_prefix in {"/usr", "/usr/local"}, reason=f"{sys.base_prefix!r} is nobody's secret")
def test_no_file_holds_the_path_that_python_was_installed_under(archive):
    ours = [os.fsencode(path) for path in (sys.base_prefix, sys.prefix, Path.home() / ".", Path.cwd())]
    with tarfile.open(archive[0]) as members:
        for member in members:
            content = members.extractfile(member).read() if member.isfile() else b""
            assert not any(path + b"/" in content for path in ours), member.name


def test_python_runs_as_nobody_in_a_root_that_it_cannot_write_to(run):
    code = "import json, os, pwd, sys; print(json.dumps([sys.version, sys.prefix, os.getuid(), pwd.getpwuid(os.getuid())[0]]))"
    assert json.loads(run(code)) == [sys.version, "/usr/local", packing.USER_ID, "evaluator"]


MODULES = """
asyncio bz2 ctypes datetime decimal email hashlib hmac http.client json logging lzma math multiprocessing pickle random re
readline select socket sqlite3 ssl statistics subprocess sysconfig tempfile unittest uuid xml.etree.ElementTree zlib zoneinfo
"""


def test_the_standard_library_is_whole(run):
    run(f"import importlib; [importlib.import_module(name) for name in {MODULES.split()!r}]")


def test_native_modules_find_their_libraries(run):
    assert run("""
import ctypes, decimal, hashlib, sqlite3, ssl, zlib, zoneinfo, datetime, sysconfig
assert sqlite3.connect(":memory:").execute("select 6 * 7").fetchone() == (42,)
assert zlib.decompress(zlib.compress(b"x")) == b"x"
assert ssl.create_default_context().check_hostname
assert str(decimal.Decimal("0.1") + decimal.Decimal("0.2")) == "0.3"
assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: n + 1)(1) == 2
zone = zoneinfo.ZoneInfo("Asia/Kolkata")
assert datetime.datetime(2024, 1, 1, tzinfo=zone).utcoffset() == datetime.timedelta(hours=5.5)
assert sysconfig.get_path("purelib").startswith("/usr/local/"), sysconfig.get_path("purelib")
for name in ["libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"]:
    ctypes.CDLL(name)
print("found")
""") == "found\n"  # fmt: skip


def test_modules_are_compiled_and_name_their_place_in_the_image(run):
    code = "import json, os, sys; m = json.decoder; print(m.__cached__, os.path.exists(m.__cached__), m.JSONDecoder.decode.__code__.co_filename)"
    cached, exists, filename = run(code).split()
    assert exists == "True"
    assert cached.startswith("/usr/local/")
    assert filename == f"/usr/local/{sys.platlibdir}/python3.{sys.version_info.minor}/json/decoder.py"


def test_there_is_no_shell(run):
    assert run("import os; print(os.listdir('/usr/local/bin'), os.path.exists('/bin'))").count("python") == 3


def test_a_python_of_another_system_is_refused_with_a_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxUnavailable, match="a Python of 'darwin' does not run in a container. Name an image"):
        packing.pack(tmp_path / "base.tar", silent)


def test_nothing_that_packs_is_told_of_the_environment(tmp_path, monkeypatch):
    canary = f"canary-{secrets.token_hex(12)}"
    monkeypatch.setenv("CANARY", canary)
    with Watch(os.getpid(), canary) as watch:
        packing.pack(tmp_path / "base.tar", silent)
    assert watch.has_seen("ldd")
    assert watch.has_seen("-m compileall")
    assert watch.seen == []


def test_a_host_without_ldd_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="there is no `ldd` here"):
        libraries.needed(Path(sys.executable), [])


def test_what_is_not_linked_with_glibc_is_refused(tmp_path):
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\n")
    with pytest.raises(SandboxUnavailable, match="is not linked with glibc"):
        libraries.needed(script, [])
