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

from evalcell_sandboxes import Language
from evalcell_sandboxes.deno import prereqs

_PYTHON_RUNNER = Path(__file__).with_name("naive.py")
_TYPESCRIPT_RUNNER = Path(__file__).with_name("naive.ts")
_HEAP_MEGABYTES = 256
_DATA_KILOBYTES = 3 * 512 * 1024
_FILE_BLOCKS = 64 * 1024**2 // 512
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
    language: Language

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
    module: str, language: Language, rows: list[dict[str, Any]], canaries: Canaries, scratch: Path, *, endless: bool
) -> Unsandboxed:
    """Runs the rows without a wall. An attack that is `endless` is not waited for."""
    name = "module.py" if language is Language.PYTHON else "module.ts"
    (scratch / name).write_text(module, encoding="utf-8")
    (scratch / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    stdout, stderr = scratch / "stdout", scratch / "stderr"
    with stdout.open("wb") as out, stderr.open("wb") as err:
        process = subprocess.Popen(
            [*_runner(language), name, "rows.jsonl"],
            stdin=subprocess.PIPE,  # never written to: who reads from it waits for ever
            stdout=out,
            stderr=err,
            cwd=scratch,
            env={**os.environ, **_surroundings(canaries, scratch)},
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
        language=language,
    )


def _runner(language: Language) -> list[str]:
    """The command that runs a module over rows. Python bounds its own harm; around Deno that is done here."""
    if language is Language.PYTHON:
        return [sys.executable, "-I", "-S", str(_PYTHON_RUNNER)]
    bounds = f'ulimit -d {_DATA_KILOBYTES}; ulimit -f {_FILE_BLOCKS}; ulimit -n 256; ulimit -c 0; exec "$@"'
    heap = f"--v8-flags=--max-old-space-size={_HEAP_MEGABYTES}"
    return ["sh", "-c", bounds, "sh", str(prereqs.binary()), "run", "-A", heap, str(_TYPESCRIPT_RUNNER)]


def _surroundings(canaries: Canaries, scratch: Path) -> dict[str, str]:
    """Registries that are the listener, a cache of its own, and nothing asked of the world outside."""
    listener = f"http://127.0.0.1:{canaries.listener.port}"
    deno = {"DENO_DIR": str(scratch / "deno"), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1", "TZ": "UTC"}
    return {**deno, "NPM_CONFIG_REGISTRY": listener, "JSR_URL": listener}


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
