"""The negative control: what becomes of an attack where there is no wall."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canaries import Canaries

_RUNNER = Path(__file__).with_name("naive.py")
_ENDLESS_SECONDS = 0.4
"""How long a row that should never end is watched before that is believed."""
_MOST_SECONDS = 30.0
_FRAME_BYTES = 1_000_000


@dataclass(frozen=True)
class Unsandboxed:
    """What a run without a wall left behind. Of its three rows the one in the middle attacks."""

    rows: dict[int, dict[str, Any]]
    """The first that was said of each row."""
    attack_began: bool
    code: int | None
    """How the process ended; None when it had to be ended."""
    stdout_bytes: int
    output: str
    stderr: str
    canaries: Canaries
    nonces: list[str]

    @property
    def attack(self) -> Any:
        """What the attack's row returned."""
        return self.rows.get(1, {}).get("result")

    @property
    def error(self) -> dict[str, str]:
        """What the attack's row raised; nothing where it did not."""
        error: dict[str, str] = self.rows.get(1, {}).get("error", {})
        return error


def run_unsandboxed(
    module: str, rows: list[dict[str, Any]], canaries: Canaries, scratch: Path, *, endless: bool
) -> Unsandboxed:
    """Runs the rows without a wall. An attack that is `endless` is not waited for."""
    (scratch / "module.py").write_text(module, encoding="utf-8")
    (scratch / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    stdout, stderr = scratch / "stdout", scratch / "stderr"
    with stdout.open("wb") as out, stderr.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_RUNNER), "module.py", "rows.jsonl"],
            stdin=subprocess.PIPE,  # never written to: who reads from it waits for ever
            stdout=out,
            stderr=err,
            cwd=scratch,
            start_new_session=True,
        )
        code = _wait(process, stdout, endless=endless)
    frames = _frames(stdout)
    done: dict[int, dict[str, Any]] = {}
    for frame in frames:
        if "started" not in frame:
            done.setdefault(frame["row"], frame)
    return Unsandboxed(
        rows=done,
        attack_began=_began(stdout),
        code=code,
        stdout_bytes=stdout.stat().st_size,
        output=_start(stdout).decode(errors="replace"),
        stderr=stderr.read_text(errors="replace")[-3_000:],
        canaries=canaries,
        nonces=[row["nonce"] for row in rows],
    )


def _wait(process: "subprocess.Popen[bytes]", stdout: Path, *, endless: bool) -> int | None:
    """Waits for the end of the process and gives its code. Its session is gone afterwards, ended or not."""
    gives_up = time.monotonic() + _MOST_SECONDS
    code, began = None, False
    while code is None and time.monotonic() < gives_up:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(0.02)
        if endless and not began and _began(stdout):
            began, gives_up = True, time.monotonic() + _ENDLESS_SECONDS
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # the session that was started for it, and nobody else
    process.wait()
    assert process.stdin is not None
    process.stdin.close()
    return code


def _start(stdout: Path) -> bytes:
    with stdout.open("rb") as file:
        return file.read(_FRAME_BYTES)


def _began(stdout: Path) -> bool:
    return b'{"row": 1, "started": true}' in _start(stdout)


def _frames(stdout: Path) -> list[dict[str, Any]]:
    found = []
    with stdout.open("rb") as file:
        for line in file:
            if len(line) > _FRAME_BYTES or not line.startswith(b"{"):
                continue
            with contextlib.suppress(ValueError, RecursionError):
                frame = json.loads(line)
                if isinstance(frame, dict) and isinstance(frame.get("row"), int):
                    found.append(frame)
    return found
