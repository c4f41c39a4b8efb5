"""Runs the benchmarks: `python -m benchmarks --help`."""

import argparse
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from benchmarks import chart, containers, report, typescript
from benchmarks.cases import CASES
from benchmarks.chart import Series
from benchmarks.parts import PARTS, PEER, Bench
from benchmarks.report import Measurement
from evalcell.running import cores
from evalcell_sandboxes import sandbox, silent
from evalcell_sandboxes.wasm import image

ROOT = Path(__file__).parent.parent
LATEST = ROOT / "benchmarks" / "latest.json"
CHART = ROOT / "docs" / "benchmarks.svg"

_HELP = """Measure evalcell against bare CPython and against a fresh interpreter for each row, in one run.

parts:
  rows        rows/s of every design on four evaluators, whose scores must agree
  lanes       rows/s with a lane for every core, against one lane
  start       seconds for ten rows with nothing compiled yet and after that, and for one row
  memory      peak memory on 200,000 rows, of the command and of a lane
  typescript  rows/s and start of TypeScript in Deno, against the same evaluators in Python in WebAssembly
  containers  seconds and rows/s of scikit-learn in containers, against bare CPython with the same packages
"""
_EPILOG = """A run of all parts takes a quarter of an hour and leaves benchmarks/latest.json and docs/benchmarks.svg.
Other work on the machine makes everything slower: read the ratios. benchmarks/README.md explains every name.
"""
_PARTS = {**PARTS, "typescript": typescript.typescript, "containers": containers.containers}
_SERIES = {
    "bare_cpython": ("Bare CPython, no wall", False),
    "shared_state": ("evalcell, shared state", True),
    "fresh_state": ("evalcell, fresh state", True),
    PEER: ("Fresh interpreter per row", False),
}
"""The designs that the chart shows, each with its title and whether it is ours."""


def main() -> None:
    """Measures, prints a table, and leaves the report and the chart if everything was measured."""
    arguments = _parser().parse_args()
    tell = _clocked()
    tell("Preparing the sandbox")
    sandbox("wasm").prepare(None, silent)
    with tempfile.TemporaryDirectory(prefix="evalcell-bench-") as scratch:
        bench = Bench(Path(scratch), tell)
        if arguments.quick:
            bench = Bench(
                Path(scratch), tell, rounds=1, seconds=0.2, many_rows=20_000, enduring_rows=20_000, container_rows=1_000
            )
        measurements = [found for part in arguments.parts or _PARTS for found in _PARTS[part](bench)]
    bars = (
        () if arguments.quick else (*typescript.BARS, *containers.BARS)
    )  # which are about more rows than a quick run has
    print(report.table(measurements, bars))
    for sentence in report.out_of_reach(measurements, bars):
        print(f"\n{sentence}")
    if arguments.quick or arguments.parts:
        tell("Done. Nothing was written: only a run of all parts, and not a quick one, leaves a report.")
        return
    if not any(found.name.endswith(f"/{PEER}") for found in measurements):
        tell("Done. Nothing was written: without the fresh interpreter there would be no ratios to it.")
        return
    report.write(LATEST, measurements)
    CHART.write_text(drawn(measurements, _machine(bench.rounds)), encoding="utf-8")
    tell(f"Done. Wrote {LATEST.relative_to(ROOT)} and {CHART.relative_to(ROOT)}")


def drawn(measurements: Sequence[Measurement], caption: str) -> str:
    """The chart of rows per second."""
    by_name = {found.name: found.value for found in measurements}

    def rates(design: str) -> dict[str, float]:
        names = {case.title: f"rows_per_second/{case.name}/{design}" for case in CASES}
        return {title: by_name[name] for title, name in names.items() if name in by_name}

    series = [
        Series(title, rates(design), against=rates(PEER) if ours else {}, emphasised=design == "fresh_state")
        for design, (title, ours) in _SERIES.items()
        if rates(design)
    ]
    subtitle = "Log scale, longer is faster."
    if rates(PEER):
        subtitle += f" {chart.TIMES} is against a fresh interpreter for each row."
    return chart.draw("Rows per second, one worker", subtitle, caption, [case.title for case in CASES], series)


def _machine(rounds: int) -> str:
    """What the numbers were measured on."""
    return (
        f"Best of {rounds} interleaved rounds. {cores()} cores, {platform.system()} {platform.machine()}, CPython "
        f"{platform.python_version()} around CPython {image.PYTHON}, wasmtime {metadata.version('wasmtime')}, "
        f"{datetime.now(UTC).date()}."
    )


def _clocked() -> Callable[[str], None]:
    """Tells how it is going on stderr, with the time since the start."""
    started = time.perf_counter()

    def tell(sentence: str) -> None:
        print(f"[{time.perf_counter() - started:4.0f} s] {sentence}", file=sys.stderr, flush=True)

    return tell


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=_HELP,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", choices=[*_PARTS, []], metavar="part", help="measure only these; else all")
    parser.add_argument("--quick", action="store_true", help="one short round: does it work, not how fast it is")
    return parser


if __name__ == "__main__":
    main()
