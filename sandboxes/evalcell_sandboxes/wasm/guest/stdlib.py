"""Imports the whole standard library while the image is built; afterwards nothing can be imported from disk."""

import encodings
import gc
import importlib
import pkgutil
import random
import sys

# Modules that act when imported, need a screen or a terminal, or belong to the interpreter's own tests.
_LEFT_OUT = frozenset(
    {
        "__main__",
        "antigravity",
        "idlelib",
        "test",
        "this",
        "turtledemo",
        "turtle",
        "tkinter",
        "pip",
        "ensurepip",
        "lib2to3",
    }
)
# Submodules that ordinary code reaches through their parent, or imports by name.
_PACKAGES = (
    "asyncio", "collections", "concurrent.futures", "csv", "email", "email.mime", "html", "http", "importlib",
    "importlib.metadata", "importlib.resources", "json", "logging", "os", "pathlib", "re", "sqlite3", "string",
    "sysconfig", "tomllib", "unittest", "urllib", "wsgiref", "xml", "xml.dom", "xml.etree", "xml.parsers",
    "xml.sax", "xmlrpc", "zipfile", "zipfile._path", "zoneinfo",
)  # fmt: skip


def _import_quietly(name: str) -> None:
    try:
        importlib.import_module(name)
    except BaseException:
        sys.modules.pop(name, None)


def _import_everything() -> None:
    for name in sorted(sys.stdlib_module_names - _LEFT_OUT):
        _import_quietly(name)
    for package in _PACKAGES:
        module = sys.modules.get(package)
        for info in pkgutil.iter_modules(getattr(module, "__path__", ())):
            if info.name not in {"__main__", "tests"}:
                _import_quietly(f"{package}.{info.name}")
    for info in pkgutil.iter_modules(encodings.__path__):
        _import_quietly(f"encodings.{info.name}")
    for name in {*encodings.aliases.aliases.values(), "utf-8", "ascii", "latin-1", "idna", "punycode"}:
        try:
            "".encode(name)
        except (LookupError, UnicodeError, AssertionError):
            continue


_import_everything()


def close_the_door() -> None:
    """Leaves `sys.modules` as the only place to import from, with no path of the building machine in sight."""
    import componentize_py_async_support  # noqa: F401 - loaded lazily by the bindings, so while it still can be
    import componentize_py_runtime  # noqa: F401
    import componentize_py_types  # noqa: F401

    sys.path.clear()
    sys.path_importer_cache.clear()
    sys.argv[:] = ["evaluator"]
    # The bindings reseed `random` on the first call of every instance with 2,496 bytes from the host, which is
    # most of what that call costs. The guest seeds it anyway, for each row: `calling` puts the real one back.
    random.seed = _seeded_later
    # The collector never needs to walk these objects again: a walk would touch, and so copy, every page they lie on.
    gc.collect()
    gc.freeze()


def _seeded_later(*_arguments) -> None:
    pass
