"""What the container sandbox needs on this machine, and how to get it."""

from evalcell_sandboxes.container.addresses import DEFAULT, sockets_of_podman
from evalcell_sandboxes.container.engine import Engine
from evalcell_sandboxes.container.failure import EngineGone
from evalcell_sandboxes.errors import SandboxError, SandboxUnavailable
from evalcell_sandboxes.site import ENVIRONMENT
from evalcell_sandboxes.versions import Version, installed

_INSTALL = "Install it with: pip install 'evalcell[container]'"
# Engines below this let a container out through a leaked descriptor of theirs (CVE-2024-21626) unless their
# distribution has mended it, as Debian's 20.10.24 has; older ones speak an API without what we ask for.
_ENGINE_FLOOR = "20.10.24"
# The oldest that the whole suite has passed on. Below 4.0.3, what a container executes could inherit capabilities
# (CVE-2022-27649). The leaked descriptor is runc's, not Podman's, and is mended there.
_PODMAN_FLOOR = "4.3.1"
_ENFORCED = {"MemoryLimit": "memory", "PidsLimit": "processes"}
"""What an engine leaves out without a word where it cannot be had, by the name under which it says so."""


def unavailable_reason(engine: Engine) -> str | None:
    """None, or what is missing and how to get it."""
    if installed("docker") is None:
        return f"the package 'docker' is not installed. {_INSTALL}"
    try:
        return _unfit(engine)
    except EngineGone:
        return (
            f"no engine at {engine.address}. Start Docker, or name another engine with {ENVIRONMENT['engine']}; "
            f"without dependencies an evaluator runs in 'wasm'.{_hint(engine)}"
        )
    except SandboxUnavailable as error:
        return error.reason
    except SandboxError as error:
        return str(error)


def _hint(engine: Engine) -> str:
    """Where Podman seems to be, if nobody has named an engine."""
    if engine.address != DEFAULT:
        return ""
    return "".join(f" To use Podman: {ENVIRONMENT['engine']}=unix://{path}" for path in sockets_of_podman())


def _unfit(engine: Engine) -> str | None:
    """Why an engine cannot be used, by what it says of itself."""
    info, at = engine.info, f"the engine at {engine.address}"
    if info.get("OSType") != "linux":
        return f"{at} runs {info.get('OSType')} containers, and these need Linux."
    if not any("seccomp" in option for option in info.get("SecurityOptions") or ()):
        return f"{at} has no seccomp, without which the wall would have holes."
    for name, what in _ENFORCED.items():
        if not info.get(name):
            return f"{at} cannot limit the {what} of a container. Give it control groups that can, or use another."
    version = version_of(engine)
    if not version.safe:
        return f"{at} is {version.name} {version.found}; use {version.floor} or newer."
    return _unknown_runtime(engine)


def _unknown_runtime(engine: Engine) -> str | None:
    known = sorted(engine.info.get("Runtimes") or ())
    if not engine.runtime or engine.runtime in known:
        return None
    return (
        f"the engine at {engine.address} knows no runtime {engine.runtime!r}; it knows {', '.join(known) or 'none'}. "
        f"Add it to the engine's settings, or name another in {ENVIRONMENT['runtime']}."
    )


def version_of(engine: Engine) -> Version:
    """The engine that the wall is made of."""
    if installed("docker") is None:
        return Version("engine", None, _ENGINE_FLOOR)
    try:
        podman, found = engine.is_podman, engine.version
    except SandboxError:
        podman, found = False, ""
    name, floor = ("podman", _PODMAN_FLOOR) if podman else ("engine", _ENGINE_FLOOR)
    return Version(name, found or None, floor)
