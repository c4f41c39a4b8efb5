"""Finds a sandbox by its name and imports it only then."""

from importlib import import_module

from evalcell_sandboxes.errors import SandboxUnavailable
from evalcell_sandboxes.sandbox import Sandbox
from evalcell_sandboxes.site import Site, here

_SANDBOXES = {
    "wasm": "evalcell_sandboxes.wasm.sandbox:WasmSandbox",
    "container": "evalcell_sandboxes.container.sandbox:ContainerSandbox",
}
# Walls that the choice of a sandbox already knows by name, each with what to say until it stands.
_NOT_YET = {
    "deno": "it is not part of this version of evalcell, and TypeScript can run nowhere else.",
}


def names() -> tuple[str, ...]:
    """The sandboxes that exist, usable here or not."""
    return tuple(_SANDBOXES)


def not_yet() -> dict[str, str]:
    """The sandboxes that are known by name but not part of this version, each with what to say about it."""
    return dict(_NOT_YET)


def known(name: str) -> bool:
    """Whether there is, or will be, a sandbox of that name."""
    return name in _SANDBOXES or name in _NOT_YET


def sandbox(name: str, site: Site | None = None) -> Sandbox:
    """Makes the sandbox of that name, on the site that the operator has described or else on the environment's.

    Raises:
        SandboxUnavailable: There is none.
    """
    if name not in _SANDBOXES:
        known = ", ".join(map(repr, _SANDBOXES))
        raise SandboxUnavailable(name, _NOT_YET.get(name, f"there is no sandbox of that name; known: {known}."))
    module, _, attribute = _SANDBOXES[name].partition(":")
    made: Sandbox = getattr(import_module(module), attribute)(here() if site is None else site)
    return made
