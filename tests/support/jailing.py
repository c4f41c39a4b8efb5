"""Runs code in a jail and out of it, and what an attacker in there would want to reach."""

import contextlib
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from evalcell_sandboxes.deno.jail import Jail

ENVIRONMENT = {"DENO_DIR": "/dev/null/none", "DENO_NO_UPDATE_CHECK": "1", "TZ": "UTC", "NO_COLOR": "1"}
ALONE = ("--no-prompt", "--no-remote", "--no-npm", "--cached-only", "--no-config", "--no-lock", "--no-code-cache")
MIB = 1024**2
SECONDS = 60

PYTHON = os.path.realpath(sys.executable)
LIBRARIES = [
    Path(place)
    for place in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), "/lib", "/usr/lib", "/lib64"}
    if place and Path(place).exists()
]
"""What Python reads. No canary lies in there."""

NATIVE = """
import ctypes, os, platform, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def c(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def call(x86_64, others, *arguments):
    number = x86_64 if platform.machine() == "x86_64" else others
    return c(libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)))
def attack():
{body}
try:
    attack()
    print("REACHED", flush=True)
except OSError as error:
    print("REFUSED", error.errno, flush=True)
os._exit(0)
"""


def native(body: str, **names: object) -> list[str]:
    """A command that does what any native code in the process could. It says whether that was REACHED or REFUSED."""
    said = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return [PYTHON, "-I", "-S", "-B", "-c", said + NATIVE.replace("{body}\n", indented)]


def unjailed(command: Sequence[str]) -> str:
    """What the command says without a jail around it."""
    done = subprocess.run(
        command, env=ENVIRONMENT, cwd="/", capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return done.stdout + done.stderr


def jailed(command: Sequence[str], *readable: Path, memory_bytes: int = 512 * MIB) -> str:
    with Jail(command, environment=ENVIRONMENT, readable=[*LIBRARIES, *readable], memory_bytes=memory_bytes) as jail:
        said, complaint = jail.process.communicate(timeout=SECONDS)
        return (said + complaint).decode(errors="replace")


@contextlib.contextmanager
def held(command: Sequence[str], *readable: Path, memory_bytes: int) -> Iterator[Jail]:
    """A jail whose process has said that it is ready and has been settled. It goes on at the next line of its input."""
    with Jail(command, environment=ENVIRONMENT, readable=[*LIBRARIES, *readable], memory_bytes=memory_bytes) as jail:
        assert jail.process.stdin
        assert jail.process.stdout
        ready = jail.process.stdout.readline()
        assert ready == b"ready\n", (ready, jail.process.stderr and jail.process.stderr.read())
        jail.settle()
        jail.process.stdin.write(b"go\n")
        jail.process.stdin.flush()
        yield jail


def gone(pid: int, seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.01)
    return False
