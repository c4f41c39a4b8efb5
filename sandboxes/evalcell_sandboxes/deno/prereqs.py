"""What the Deno sandbox needs on this machine, and how to get it."""

import sys
from functools import cache
from pathlib import Path

from evalcell_sandboxes.versions import Version, installed

_INSTALL = "Install it with: pip install 'evalcell[deno]'"
# The version that every attack of the suite was tried on. 3 may rename the flags that take its permissions away.
_FLOOR = "2.9.8"
_SPOKEN = "2."
_PROGRAM = ("deno", "deno.exe")


def deno() -> Version:
    """The runtime that the wall is made of."""
    return Version("deno", installed("deno"), _FLOOR)


def unavailable_reason() -> str | None:
    """None, or what is missing and the command that gets it."""
    runtime = deno()
    if runtime.found is None:
        return f"the package 'deno', which runs TypeScript, is not installed. {_INSTALL}"
    if not runtime.safe:
        return f"deno {runtime.found} is older than {runtime.floor}, with which this wall was tried. {_INSTALL}"
    if not runtime.found.startswith(_SPOKEN):
        return f"deno {runtime.found} is newer than this version of evalcell knows how to confine. {_INSTALL}"
    if binary() is None:
        return f"the package 'deno' is installed without its program. {_INSTALL}"
    return None


@cache
def binary() -> Path | None:
    """The program that the package has brought, by the list of its files: never one that just happens to be found."""
    for place in sys.path:
        for record in Path(place).glob("deno-*.dist-info/RECORD"):
            for line in record.read_text(encoding="utf-8").splitlines():
                file = Path(place) / line.partition(",")[0]
                if file.name in _PROGRAM and file.is_file():
                    return file.resolve()
    return None
