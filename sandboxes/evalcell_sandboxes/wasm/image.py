"""The guest image: CPython for WebAssembly with our guest modules already imported.

A wheel carries the image, compressed. A source tree has none: it is built once into the cache by componentize-py,
which is needed for that and never at run time. An image is named by its inputs (componentize-py's version, the
guest's sources, the WIT), because two builds of the same inputs differ in their bytes.

The build hook imports this file on its own, so it uses the standard library only. Lanes import it too, to name the
image: what only building needs is imported there.
"""

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

COMPONENTIZE_PY = "0.25.1"
PYTHON = "3.14.0"
"""The version of the CPython that this componentize-py carries."""

_HERE = Path(__file__).resolve().parent
_GUEST = _HERE / "guest"
_SHARED = _HERE.parent / "guest"
"""What every guest that is a CPython has in it."""


def identity() -> str:
    """A digest of everything that decides what the image does."""
    digest = hashlib.sha256(f"componentize-py {COMPONENTIZE_PY}".encode())
    for path in sorted([*_GUEST.glob("*.py"), *_SHARED.glob("*.py"), *_GUEST.glob("wit/*.wit")]):
        content = path.read_bytes()
        digest.update(f"\0{path.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:32]


def file_name() -> str:
    """What the image is called, in a wheel and in the cache."""
    return f"guest-{identity()}.wasm.gz"


def packaged() -> Path | None:
    """The image that an installed wheel carries."""
    path = _HERE / file_name()
    return path if path.exists() else None


def can_build() -> bool:
    """Whether the right componentize-py is installed beside us."""
    from importlib import metadata

    try:
        return metadata.version("componentize-py") == COMPONENTIZE_PY
    except metadata.PackageNotFoundError:
        return False


def build(target: Path, environ: Mapping[str, str]) -> None:
    """Builds the image and leaves it, compressed, at `target`. `environ` is what the builder is told of.

    Raises:
        subprocess.CalledProcessError: componentize-py failed; its output is in the exception.
    """
    import gzip
    import shutil
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory(prefix="evalcell-guest-") as scratch:
        sources = Path(scratch) / "guest"
        for place in (_GUEST, _SHARED):
            shutil.copytree(place, sources, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        image = Path(scratch) / "guest.wasm"
        # Not with `-m`: the package has no __main__. Its console script does no more than this.
        command = [sys.executable, "-c", "from componentize_py import script; script()"]
        command += ["-q", "-d", "wit", "-w", "guest", "componentize", "-p", ".", "app", "-o", str(image)]
        # An active virtual environment would be searched for modules, and its packages would end up in the image.
        environment = {name: value for name, value in environ.items() if name != "VIRTUAL_ENV"}
        subprocess.run(command, cwd=sources, env=environment, check=True, capture_output=True, text=True)
        with gzip.open(target, "wb", compresslevel=9) as out, image.open("rb") as built:
            shutil.copyfileobj(built, out)
