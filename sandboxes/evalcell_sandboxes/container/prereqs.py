"""What the container sandbox needs on this machine, and how to get it."""

from typing import Any

from evalcell_sandboxes.container.engine import address, connected
from evalcell_sandboxes.container.failure import EngineGone
from evalcell_sandboxes.errors import SandboxError
from evalcell_sandboxes.versions import Version, installed

_INSTALL = "Install it with: pip install 'evalcell[container]'"
# Engines below this let a container out through a leaked descriptor of theirs (CVE-2024-21626) unless their
# distribution has mended it, as Debian's 20.10.24 has; older ones speak an API without what we ask for.
_ENGINE_FLOOR = "20.10.24"


def unavailable_reason() -> str | None:
    """None, or what is missing and how to get it."""
    if installed("docker") is None:
        return f"the package 'docker' is not installed. {_INSTALL}"
    try:
        info = connected().info()
    except EngineGone:
        return (
            f"no engine at {address()}. Start Docker, or name another engine with DOCKER_HOST; "
            "without dependencies an evaluator runs in 'wasm'."
        )
    except SandboxError as error:
        return str(error)
    return _unfit(info)


def _unfit(info: dict[str, Any]) -> str | None:
    """Why an engine cannot be used, by what it says of itself."""
    if info.get("OSType") != "linux":
        return f"the engine at {address()} runs {info.get('OSType')} containers, and these need Linux."
    if not any("seccomp" in option for option in info.get("SecurityOptions") or ()):
        return f"the engine at {address()} has no seccomp, without which the wall would have holes."
    version = engine()
    if not version.safe:
        return f"the engine at {address()} is {version.found}; use {version.floor} or newer."
    return None


def engine() -> Version:
    """The engine that the wall is made of."""
    try:
        found = str(connected().info().get("ServerVersion", "")).partition("+")[0]
    except SandboxError:
        found = ""
    return Version("engine", found or None, _ENGINE_FLOOR)
