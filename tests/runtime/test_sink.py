"""Where records go: whole files under final names, whatever else goes on."""

import errno
import fcntl
import resource
from pathlib import Path

import pytest

from evalcell import sink
from evalcell.errors import OutputError


def test_a_file_has_its_name_when_it_is_whole(tmp_path):
    with sink.opened(str(tmp_path / "o.jsonl")) as write:
        write([b"1\n", b"2\n"])
        assert not (tmp_path / "o.jsonl").exists()
    assert (tmp_path / "o.jsonl").read_bytes() == b"1\n2\n"
    assert not (tmp_path / "o.jsonl.partial").exists()


def test_what_a_killed_run_left_is_written_over(tmp_path):
    (tmp_path / "o.jsonl.partial").write_bytes(b"old records\n" * 10)
    with sink.opened(str(tmp_path / "o.jsonl")) as write:
        write([b"new\n"])
    assert (tmp_path / "o.jsonl").read_bytes() == b"new\n"


def test_a_file_system_without_locks_is_written_all_the_same(tmp_path, monkeypatch):
    def none(*_):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", none)
    with sink.opened(str(tmp_path / "o.jsonl")) as write:
        write([b"1\n"])
    assert (tmp_path / "o.jsonl").read_bytes() == b"1\n"


def test_a_file_that_is_finished_while_another_run_opens_it_stays_whole(tmp_path, monkeypatch):
    """The other run gets hold of the file under its old name, and its lock when it has the new one."""
    first = sink.opened(str(tmp_path / "o.jsonl"))
    first.__enter__()([b"first\n"])
    real, struck = fcntl.flock, []

    def finish_first(file, how):
        if not struck:
            struck.append(file)
            first.__exit__(None, None, None)
        return real(file, how)

    monkeypatch.setattr(fcntl, "flock", finish_first)
    with sink.opened(str(tmp_path / "o.jsonl")) as write:
        assert (tmp_path / "o.jsonl").read_bytes() == b"first\n"
        write([b"second\n"])
    assert struck
    assert (tmp_path / "o.jsonl").read_bytes() == b"second\n"


def test_an_error_keeps_what_was_written_and_names_it(tmp_path):
    def fail():
        with sink.opened(str(tmp_path / "o.jsonl")) as write:
            write([b"1\n"])
            raise OutputError("full")

    with pytest.raises(OutputError) as caught:
        fail()
    assert "o.jsonl.partial" in caught.value.__notes__[0]
    assert (tmp_path / "o.jsonl.partial").read_bytes() == b"1\n"


def test_a_full_disk_names_the_file(tmp_path):
    path = tmp_path / "o.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
    try:
        with (
            pytest.raises(OutputError, match=r"o\.jsonl\.partial cannot be written on: File too large") as raised,
            sink.opened(str(path)) as write,
        ):
            write([b"x" * 600, b"x" * 600])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised.value.__notes__ == [f"The records so far are in '{path}.partial'."]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_full_device_is_named():
    with (
        pytest.raises(OutputError, match="/dev/full cannot be written on: No space left on device"),
        sink.opened("/dev/full") as write,
    ):
        write([b"1\n"])
