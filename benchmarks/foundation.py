"""Measures what the foundation promises, each number beside a baseline of the same run. `make bench` runs it.

This machine may be shared and noisy: read the ratios, not the numbers.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXACT = "def evaluate(output, reference):\n    return float(output == reference)\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        (here / "exact.py").write_text(EXACT)
        small, middle, large = (write_rows(here / f"{count}.jsonl", count) for count in (10, 4_000, 200_000))
        bare = bare_rows_per_second(large)
        print(f"bare CPython, in-process   {bare:>12,.0f} rows/s")
        fresh = run(here, middle, "--workers", "1")["rows_per_second"]
        print(f"fresh state, one lane      {fresh:>12,.0f} rows/s   {fresh / bare:.2%} of bare")
        shared = run(here, large, "--workers", "1", "--isolation", "evaluator")["rows_per_second"]
        print(f"shared state, one lane     {shared:>12,.0f} rows/s   {shared / fresh:.1f}x fresh")
        both = run(here, middle)["rows_per_second"]
        print(f"fresh state, {os.cpu_count()} lanes       {both:>12,.0f} rows/s   {both / fresh:.2f}x one lane")
        start = min(timed(here, small) for _ in range(3))
        python = min(timed_python() for _ in range(3))
        print(f"warm start, 10 rows        {start:>12.2f} s        {start / python:.0f}x `python -c pass`")
        print(f"peak memory, 200,000 rows  {parent_peak_mb(here, large):>12.0f} MB of the parent")


def write_rows(path: Path, count: int) -> Path:
    with path.open("w") as out:
        for n in range(count):
            out.write(json.dumps({"id": n, "output": f"answer {n % 7}", "reference": f"answer {n % 5}"}) + "\n")
    return path


def bare_rows_per_second(data: Path) -> float:
    namespace: dict = {}
    exec(EXACT, namespace)
    evaluate = namespace["evaluate"]
    lines = data.read_text().splitlines()
    started = time.perf_counter()
    for line in lines:
        row = json.loads(line)
        json.dumps({"score": evaluate(row["output"], row["reference"])})
    return len(lines) / (time.perf_counter() - started)


def command(here: Path, data: Path, *flags: str) -> list[str]:
    return [sys.executable, "-m", "evalcell", "run", str(here / "exact.py"), "--data", str(data), "--json", *flags]


def run(here: Path, data: Path, *flags: str) -> dict:
    return json.loads(subprocess.run(command(here, data, *flags), capture_output=True, check=True).stdout)


def timed(here: Path, data: Path) -> float:
    started = time.perf_counter()
    run(here, data)
    return time.perf_counter() - started


def timed_python() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - started


def parent_peak_mb(here: Path, data: Path) -> float:
    """The peak of the process that was started, not of the lanes below it."""
    process = subprocess.Popen(command(here, data, "--isolation", "evaluator"), stdout=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    scale = 1 if sys.platform == "darwin" else 1024
    assert isinstance(usage, resource.struct_rusage)
    return usage.ru_maxrss * scale / 1e6


if __name__ == "__main__":
    main()
