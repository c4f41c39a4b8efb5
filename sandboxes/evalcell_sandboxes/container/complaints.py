"""Turns what uv complains about into our own errors: whose fault it is, and what to do next."""

import re
from collections.abc import Sequence

from evalcell_sandboxes.errors import DependencyProblem, SandboxUnavailable

_CREDENTIALS = re.compile(r"(?<=://)[^\s/]+@")
_MOST_CHARACTERS = 4000

_UNREACHABLE = ("error sending request", "Request failed after", "dns error", "operation timed out", "Connection re")
_REFUSED = re.compile(r"\b(401 Unauthorized|403 Forbidden|407 Proxy Authentication Required)")
_NO_WHEEL = re.compile(
    r"(?:Because |and )(?:all versions of |only )?`?([\w.\-\[\]]+?)`?"
    r"(?:[=<>!~]=?[^ ]*)? (?:has|have) no (?:usable )?wheels"
)
_NOT_FOUND = re.compile(r"Because ([\w.\-\[\]]+) was not found in the (?:package registry|provided)")


def unavailable(reason: str) -> SandboxUnavailable:
    """The container's packages cannot be had on this machine as it is."""
    return SandboxUnavailable("container", reason)


def masked(text: str) -> str:
    """Hides the user and password of every address in the text."""
    return _CREDENTIALS.sub("***@", text)


def error(complaint: str, doing: str) -> DependencyProblem | SandboxUnavailable:
    """The error for what uv wrote before it gave up. `doing` says what it was asked for: 'resolve numpy'."""
    text = masked(_bare(complaint))
    if _REFUSED.search(complaint):  # uv says so in a hint only, and that there is no such package
        return unavailable(
            f"the package index refused the credentials it was given, so evalcell could not {doing}. "
            f"Check the index settings of uv or pip. uv says:\n{text}"
        )
    if "No space left on device" in text or "os error 28" in text:
        return unavailable(
            f"the disk is full, so evalcell could not {doing}. "
            "Free some space, or set EVALCELL_CACHE_DIR to a directory on another disk."
        )
    if any(sign in text for sign in _UNREACHABLE) or "network was disabled" in complaint:
        return unavailable(
            f"the package index cannot be reached, so evalcell could not {doing}. Check the network and the index "
            f"settings of uv or pip, and try again: once the packages are built into a layer, nothing needs the "
            f"network. uv says:\n{text}"
        )
    return DependencyProblem(_problem(text, doing))


def _problem(text: str, doing: str) -> str:
    said = f"uv says:\n{text}"
    if "Hash mismatch" in text:
        return (
            f"Could not {doing}: the index serves another file than the one that was locked, and nothing was "
            f"installed. Find out why before you lock anew with `evalcell lock`. {said}"
        )
    if (found := _NO_WHEEL.search(text)) is not None:
        return (
            f"Could not {doing}: {found[1]!r} has no wheel that fits, and evalcell builds no package from source, "
            f"because that runs the package's code outside the sandbox. Choose another version or package. {said}"
        )
    if (found := _NOT_FOUND.search(text)) is not None:
        return f"Could not {doing}: the index has no package {found[1]!r}. Check the spelling. {said}"
    if "No solution found" in text:
        return f"Could not {doing}: no versions fit together. Loosen or change one of the requirements. {said}"
    return f"Could not {doing}. {said}"


def _bare(complaint: str) -> str:
    """Without uv's progress and without hints, which name flags that nobody here can set."""
    kept: list[str] = []
    for line in complaint.splitlines():
        if line.startswith(("hint:", "warning:", "Using ", "Resolved ", "Prepared ", "Downloading ", " Downloaded ")):
            continue
        if line.strip():
            kept.append(line)
    return "\n".join(kept)[-_MOST_CHARACTERS:] or "nothing"


def listed(names: Sequence[str], most: int = 3) -> str:
    """'a, b, c and 4 more'."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
