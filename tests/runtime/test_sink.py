"""Where records go: whole files under final names, whatever else goes on."""

import errno
import fcntl

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
