"""A guest that hostile code has taken over, and that says whatever it likes to the host."""

import json
import time
from pathlib import Path

import pytest

from evalcell_sandboxes import Confinement, Crashed, Exceeded, Language, Limits, Program, Returned, sandbox
from evalcell_sandboxes.deno import process

SOURCE = "export function evaluate({ output }: EvaluatorParams) { return output; }\n\n"
HONEST = '''
const frame = () => {
  const head = new Uint8Array(5);
  if (Deno.stdin.readSync(head) === null) Deno.exit();
  const body = new Uint8Array(new DataView(head.buffer).getUint32(0));
  for (let at = 0; at < body.length; ) at += Deno.stdin.readSync(body.subarray(at));
  return String.fromCharCode(head[4]);
};
const say = (text) => Deno.stdout.writeSync(new TextEncoder().encode(text));
say('{"ready":true}\\n');
while (true) {
  const command = frame();
  if (command === "L") say('{"value":false}\\n');
  if (command === "R") ROWS;
}
'''  # fmt: skip
SAID = {
    "a line without end": ("while (true) say('x'.repeat(60_000))", Crashed),
    "that a row begins, for ever": ("while (true) say('\\n')", Exceeded),
    "that a row begins, for ever, and slowly": (
        "while (true) { say('\\n'); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50) }",
        Exceeded,
    ),
    "nothing": ("while (true);", Exceeded),
    "half a line, for ever": (
        "while (true) { say('x'); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50) }",
        Exceeded,
    ),
}


@pytest.fixture
def guest(tmp_path, monkeypatch):
    """Has a script stand in for the guest."""

    def guest(rows: str) -> None:
        (tmp_path / "worker.js").write_text(HONEST.replace("ROWS", rows))
        monkeypatch.setattr(process, "GUEST", tmp_path)

    return guest


def run(**limits: float) -> tuple[object, float]:
    program = Program(SOURCE, "judge.ts", Language.TYPESCRIPT)
    confinement = Confinement(limits=Limits(**{"wall_seconds": 0.5, **limits}))
    with sandbox("deno").open(program, confinement) as session:
        assert isinstance(session.loaded, Returned), session.loaded
        started = time.monotonic()
        return next(session.run([json.dumps({"output": 1}).encode()])), time.monotonic() - started


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize(("rows", "kind"), SAID.values(), ids=SAID)
def test_it_gains_neither_time_nor_memory_of_the_host(guest, rows, kind):
    guest(rows)
    before = resident()
    outcome, seconds = run(load_seconds=2.0)
    assert isinstance(outcome, kind), outcome
    assert seconds < 5
    assert resident() - before < 64 * 1024**2


def test_the_stand_in_can_answer(guest):
    """The control."""
    guest("""say('\\n{"value":7}\\n')""")
    outcome, _ = run()
    assert isinstance(outcome, Returned)
    assert outcome.value == b"7"


def test_one_that_closes_its_end_and_lives_on_is_a_crash(tmp_path, monkeypatch):
    """Only native code can. The shell stands in for it, and answers what is asked first."""
    shell = tmp_path / "deno"
    shell.write_text(
        """#!/bin/sh
echo '{"ready":true}'
read -r the_source_has_an_end_of_line
echo '{"value":false}'
read -r and_more_than_one
exec >&-
while :; do :; done
"""
    )
    shell.chmod(0o755)
    monkeypatch.setattr(process, "_command", lambda memory_bytes: ["/bin/sh", str(shell)])
    monkeypatch.setattr(process, "GUEST", tmp_path)
    started = time.monotonic()
    outcome, _ = run()
    assert isinstance(outcome, Crashed), outcome
    assert time.monotonic() - started < 10
