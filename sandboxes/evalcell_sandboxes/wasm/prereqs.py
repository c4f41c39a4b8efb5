"""What the WebAssembly sandbox needs on this machine, and how to get it."""

from importlib.util import find_spec

from evalcell_sandboxes.caching import cache_dir
from evalcell_sandboxes.wasm import image


def unavailable_reason() -> str | None:
    """None, or what is missing and the command that gets it."""
    if find_spec("wasmtime") is None:
        return "the package 'wasmtime' is not installed. Install it with: pip install wasmtime"
    if image.packaged() or (cache_dir() / "wasm" / image.file_name()).exists() or image.can_build():
        return None
    return (
        "this installation carries no guest image for its sources. In a source tree, build it with: make guest "
        f"(or: pip install componentize-py=={image.COMPONENTIZE_PY}). Otherwise reinstall evalcell from a wheel."
    )
