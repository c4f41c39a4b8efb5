"""Finds a sandbox by its name and imports it only then."""

from importlib import import_module

from evalcell_sandboxes.errors import SandboxUnavailable
from evalcell_sandboxes.sandbox import Sandbox
from evalcell_sandboxes.site import Site, here

_SANDBOXES = {
    "wasm": "evalcell_sandboxes.wasm.sandbox:WasmSandbox",
    "container": "evalcell_sandboxes.container.sandbox:ContainerSandbox",
    "deno": "evalcell_sandboxes.deno.sandbox:DenoSandbox",
}


def names() -> tuple[str, ...]:
    """The sandboxes that exist, usable here or not."""
    return tuple(_SANDBOXES)


def known(name: str) -> bool:
    """Whether there is a sandbox of that name."""
    return name in _SANDBOXES


def sandbox(name: str, site: Site | None = None) -> Sandbox:
    """Makes the sandbox of that name, on the site that the operator has described or else on the environment's.

    Raises:
        SandboxUnavailable: There is none.
    """
    if name not in _SANDBOXES:
        listed = ", ".join(map(repr, _SANDBOXES))
        raise SandboxUnavailable(name, f"there is no sandbox of that name; known: {listed}.")
    module, _, attribute = _SANDBOXES[name].partition(":")
    made: Sandbox = getattr(import_module(module), attribute)(here() if site is None else site)
    return made
