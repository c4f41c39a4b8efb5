"""What a type checker makes of the public API. Checked by `make lint`; never executed."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, assert_type

import evalcell


def synchronous() -> None:
    evaluator = evalcell.Evaluator.from_file("judge.py")
    evaluator = evalcell.Evaluator.from_source("def evaluate(output): return 1", name="one")
    evalcell.run("judge.py", "rows.jsonl")
    evalcell.run(Path("judge.py"), Path("rows.csv"), bind={"output": "answer"}, limits={"wall_seconds": 2})
    with evalcell.run(evaluator, [{"output": 1}], set={"case": False}, out="results.jsonl") as run:
        assert_type(run, evalcell.Run)
        assert_type(run.results(), Iterator[evalcell.Record])
        for record in run.results():
            assert_type(record.score, float | None)
            assert_type(record.error, evalcell.Error | None)
        assert_type(run.progress(), evalcell.RunProgress)
        assert_type(run.progress().fraction, float | None)
        assert_type(run.summary(), dict[str, Any])
    evalcell.run(evaluator, "rows.jsonl", rows="ten")  # type: ignore[arg-type]
    evalcell.run(evaluator, "rows.jsonl", worker=2)  # type: ignore[call-arg]


async def asynchronous() -> None:
    async with await evalcell.arun("judge.py", "rows.jsonl", workers=2) as run:
        assert_type(run, evalcell.AsyncRun)
        assert_type(run.results(), AsyncIterator[evalcell.Record])
        async for record in run.results():
            assert_type(record.label, str | None)
    await evalcell.arun("judge.py", "rows.jsonl", worker=2)  # type: ignore[call-arg]
