"""What is kept for hooks while rows are read and scored, out of memory."""

import subprocess
import sys
import tempfile

from evalcell.spool import Spool


def test_a_spool_gives_its_pieces_again_to_several_readers_in_turn():
    with Spool() as spool:
        for n in range(50):
            spool.append(bytes([n]) * (n * 10_000))
        readers = [spool.pieces(), spool.pieces()]
        next(readers[1])
        for n in range(49):
            assert next(readers[0]) == bytes([n]) * (n * 10_000)
            assert next(readers[1]) == bytes([n + 1]) * ((n + 1) * 10_000)
        spool.append(b"last")
        assert [len(piece) for piece in readers[0]] == [490_000, 4]


def test_a_spool_that_is_large_is_a_file_without_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Spool() as spool:
        for _ in range(8):
            spool.append(b"x" * 1024**2)
        assert spool._file._rolled
        assert list(tmp_path.iterdir()) == []


def test_the_memory_of_the_parent_does_not_grow_with_what_is_kept(tmp_path):
    """Rows to fit on and results to aggregate weigh 90 MB here; the parent keeps them in files."""
    program = """
import resource, sys, evalcell
source = "def fit(rows): pass\\ndef evaluate(output): return {'score': 1, 'k': output[:500_000]}\\ndef aggregate(results): return len(results)\\n"
rows = ({"output": "x" * 1_000_000} for _ in range(int(sys.argv[1])))
run = evalcell.run(evalcell.Evaluator.from_source(source), rows, isolation="evaluator", workers=1)
assert run.wait()["aggregates"] == {"evaluator": int(sys.argv[1])}, run.summary()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10))
"""
    peaks = [
        float(
            subprocess.check_output([sys.executable, "-c", program, str(count)], cwd=tmp_path, text=True, timeout=120)
        )
        for count in (5, 60)
    ]
    assert peaks[1] < peaks[0] + 40, peaks
