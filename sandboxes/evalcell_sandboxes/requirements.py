"""What an evaluator may ask for: packages by name, one a line, and nothing that an installer would take for an order.

The author of an evaluator is not trusted, and installers read much more than names: addresses, paths, options,
included files, variables of the environment. All of it is refused here, before any installer runs.
"""

import platform
import re
from collections.abc import Sequence

_LONGEST = 500
_ARCHIVES = (".whl", ".zip", ".tar", ".gz", ".bz2", ".xz", ".tgz", ".egg")
_EXAMPLE = "write a name with an optional version, such as 'scikit-learn>=1.5'"


def requirement(line: str) -> str:
    """Gives one requirement by name in its normal form: 'Scikit_Learn >= 1.5' becomes 'scikit-learn>=1.5'.

    Raises:
        ValueError: It is anything else; the message says what, and what to write instead.
    """
    if (reason := _trick(line) or _elsewhere(line)) is not None:
        raise ValueError(f"{_shortened(line)!r} {reason}; {_EXAMPLE}.")
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        parsed = Requirement(line)
    except InvalidRequirement as error:
        why = str(error).partition("\n")[0].rstrip(".:")
        raise ValueError(f"{line!r} is not a requirement: {why}; {_EXAMPLE}.") from None
    parsed.name = canonicalize_name(parsed.name)
    parsed.extras = {canonicalize_name(extra) for extra in parsed.extras}
    normal = str(parsed)
    if parsed.url is not None or "'" in normal:  # the header of a lock tells requirements apart by their double quotes
        raise ValueError(f"{line!r} holds an address, or a quote within quotes; {_EXAMPLE}.")
    return normal


def requirements(text: str) -> tuple[str, ...]:
    """Gives the requirements of a text that holds one a line. Blank lines and comments are left out.

    Raises:
        ValueError: A line is no requirement; the message names it by its number.
    """
    found = []
    for number, line in enumerate(text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"), 1):
        bare = re.sub(r"(^|[ \t])#.*", "", line).strip(" \t")
        if not bare:
            continue
        try:
            found.append(requirement(bare))
        except ValueError as error:
            raise ValueError(f"Line {number}: {error}") from None
    return tuple(found)


def applying(lines: Sequence[str], python: str) -> tuple[str, ...]:
    """Gives those whose marker holds on Linux with that version of Python, wherever this runs."""
    from packaging.requirements import Requirement

    environment = _linux(python)
    parsed = [(line, Requirement(line).marker) for line in lines]
    return tuple(line for line, marker in parsed if marker is None or marker.evaluate(environment))


def _trick(line: str) -> str | None:
    """Why the line must not reach a parser: it is not the one line of plain text that it seems."""
    if not line.strip():
        return "is empty"
    if len(line) > _LONGEST:
        return f"is {len(line)} characters long, and the longest requirement has {_LONGEST}"
    if not (line.isascii() and line.isprintable()):
        return "holds a line break or a character that is not plain ASCII"
    for mark, meaning in _MARKS.items():
        if mark in line:
            return f"holds {meaning}"
    return None


_MARKS = {
    "\\": "a backslash, which would join it with the next line",
    "#": "a comment",
    "$": "a variable of the environment",
    "%": "a variable of the environment",
}


def _elsewhere(line: str) -> str | None:
    """Why the line must not reach an installer: it says where from or how, and not only what."""
    if line.lstrip().startswith("-") or " -" in line:
        return "is an option of an installer, and where packages come from is the operator's to say"
    if "://" in line or "@" in line or re.match(r" *[A-Za-z][A-Za-z+]*:", line):
        return "points at an address, and packages come by name alone"
    name = line.partition("[")[0].strip().lower()
    if "/" in line or name.startswith((".", "~")) or name.endswith(_ARCHIVES):
        return "is a path, and packages come by name alone"
    return None


def _shortened(line: str) -> str:
    return line if len(line) <= _LONGEST else f"{line[:60]}..."


def _linux(python: str) -> dict[str, str]:
    """Every variable that a marker may name, so that none is taken from this host's own system."""
    machine = platform.machine()
    return {
        "extra": "",
        "implementation_name": "cpython",
        "implementation_version": python,
        "os_name": "posix",
        "platform_machine": {"arm64": "aarch64", "AMD64": "x86_64"}.get(machine, machine),
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": python if python.count(".") > 1 else f"{python}.0",
        "python_version": ".".join(python.split(".")[:2]),
        "sys_platform": "linux",
    }
