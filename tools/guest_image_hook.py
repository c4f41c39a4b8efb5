"""Puts the guest image and the examples into the wheel; for an editable install, the image into the user's cache."""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_WASM = Path("sandboxes/evalcell_sandboxes/wasm")


class GuestImageHook(BuildHookInterface[Any]):
    """Hatch's custom build hook for the wheel target."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds the image where it is missing and tells hatch about it."""
        image = _load_image_module(Path(self.root) / _WASM / "image.py")
        target = _cached(image.file_name())
        if not target.exists():
            self.app.display_info("Building the guest image: about half a minute, once")
            partial = target.with_suffix(".partial")
            image.build(partial, os.environ)
            partial.replace(target)
        if version != "editable":
            inside = f"evalcell_sandboxes/wasm/{target.name}"
            build_data["force_include"][str(target)] = inside
            build_data["force_include"][str(Path(self.root) / "examples")] = "evalcell/examples"


def _cached(name: str) -> Path:
    """The same place that `evalcell_sandboxes.wasm.module` looks in."""
    from platformdirs import user_cache_path

    configured = os.environ.get("EVALCELL_CACHE_DIR")
    cache = Path(configured) if configured else user_cache_path("evalcell", appauthor=False)
    for directory in (cache, cache / "wasm"):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return cache / "wasm" / name


def _load_image_module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("guest_image", path)
    if spec is None or spec.loader is None:
        sys.exit(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
