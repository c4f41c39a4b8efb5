"""What the WebAssembly sandbox needs on this machine, and how to get it."""

from evalcell_sandboxes.caching import cache_dir
from evalcell_sandboxes.versions import Version, installed
from evalcell_sandboxes.wasm import image

# All advisories up to October 2026 are mended in 49.0.2, the last of them CVE-2026-115384, by which a guest could
# write to the host's stack; 50 is the version whose C API `calls.py` speaks.
_WASMTIME_FLOOR = "50.0.0"
_WASMTIME_SPOKEN = "50."


def wasmtime() -> Version:
    """The engine that the wall is made of."""
    return Version("wasmtime", installed("wasmtime"), _WASMTIME_FLOOR)


def unavailable_reason() -> str | None:
    """None, or what is missing and the command that gets it."""
    engine = wasmtime()
    if engine.found is None:
        return "the package 'wasmtime' is not installed. Install it with: pip install 'wasmtime>=50,<51'"
    if not engine.safe or not engine.found.startswith(_WASMTIME_SPOKEN):
        what = (
            "newer than this version of evalcell knows how to speak to"
            if engine.safe
            else f"older than {engine.floor}, and older ones have known ways out"
        )
        return f"wasmtime {engine.found} is {what}. Install another with: pip install 'wasmtime>=50,<51'"
    if image.packaged() or (cache_dir() / "wasm" / image.file_name()).exists() or image.can_build():
        return None
    return (
        "this installation carries no guest image for its sources. In a source tree, build it with: make guest "
        f"(or: pip install componentize-py=={image.COMPONENTIZE_PY}). Otherwise reinstall evalcell from a wheel."
    )
