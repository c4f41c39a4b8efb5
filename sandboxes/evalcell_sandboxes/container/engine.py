"""The container engine as the operator has configured it, and what of ours is left on it."""

import contextlib
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evalcell_sandboxes.container.failure import EngineGone, translated

if TYPE_CHECKING:
    from docker import DockerClient

OWNER = "evalcell.owner"
"""The label of every container of ours: which process it belongs to."""
_DEFAULT_ADDRESS = "unix:///var/run/docker.sock"
_API_SECONDS = 120
_ABANDONED_SECONDS = 3600.0
_RESTART_SECONDS = 5.0
_CREATING_SECONDS = 1.0
_T = TypeVar("_T")


def address() -> str:
    """Where the engine is."""
    return os.environ.get("DOCKER_HOST") or _DEFAULT_ADDRESS


@cache
def connected() -> "DockerClient":
    """The client of the engine. Made once a process; whether anybody answers is seen when it is used.

    Raises:
        SandboxUnavailable: The settings make no sense, or nobody answers.
    """
    import docker

    with translated("its version was asked for"):
        return docker.from_env(timeout=_API_SECONDS)


def patiently(make: Callable[[], _T]) -> _T:
    """What is made on the engine, also if that is just being restarted: then it is tried for some seconds."""
    until = time.monotonic() + _RESTART_SECONDS
    while True:
        try:
            return make()
        except EngineGone:
            if time.monotonic() > until:
                raise
            time.sleep(_RESTART_SECONDS / 10)


def owner() -> str:
    """Names this process, so that others can tell whether it still lives."""
    return f"{_machine()} {os.getpid()} {_started(os.getpid())}"


def _machine() -> str:
    """Names this machine since it was started, and the namespace in which our process numbers mean something."""
    parts = []
    for read in (_boot, _namespace, lambda: os.uname().nodename):
        with contextlib.suppress(OSError):
            parts.append(read())
    return "-".join(parts).replace(" ", "_")


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _started(pid: int) -> str:
    """When a process was started, in ticks: its number may be given to another. Empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def _lives(pid: int) -> bool:
    """Whether there is a process of this number, where no more can be known of it than that."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's by now, but there is one
        pass
    return True


def sweep() -> int:
    """Removes the containers of processes that are gone, and says how many there were."""
    swept = 0
    with translated("leftovers of former runs were looked for"):
        found = connected().api.containers(all=True, filters={"label": OWNER})
    for container in found:
        if _is_left(container):
            with contextlib.suppress(Exception):  # somebody else may just do the same
                connected().api.remove_container(container["Id"], force=True, v=True)
                swept += 1
    return swept


def sweep_out(expected: int) -> None:
    """Removes what processes have left that were just killed. So many of them may have been creating a container: the
    engine does not stop doing that when nobody waits for it any more, so it is looked for a little longer.
    """
    until = time.monotonic() + _CREATING_SECONDS
    swept = sweep()
    while swept < expected and time.monotonic() < until:
        time.sleep(_CREATING_SECONDS / 10)
        swept += sweep()


def _is_left(container: dict[str, Any]) -> bool:
    machine, _, process = container["Labels"][OWNER].partition(" ")
    if not machine:  # somebody else's, who has started one of our images
        return False
    pid, _, started = process.partition(" ")
    if machine == _machine() and pid.isdigit():
        return _started(int(pid)) != started if started else not _lives(int(pid))
    abandoned = time.time() - float(container["Created"]) > _ABANDONED_SECONDS
    return abandoned and str(container["State"]) != "running"
