r"""Resolves requirements to a lock: exact versions with the hashes of their files, and no address.

A lock is a text that pip and uv read too. Its first line says what it was made for:

    # evalcell lock 1: python >= 3.11: numpy, scikit-learn>=1.4
    numpy==2.4.6 ; python_full_version < '3.12' \
        --hash=sha256:001fbb8e08d942dd57599e781f2472269ee7f2755fae407b4f67b2f0b17da3f1

It may come from a file beside an evaluator that nobody trusts, so `check` reads it line by line and lets nothing
through that an installer could take for an order.
"""

import re
from collections.abc import Collection, Sequence

from msgspec import Struct

from evalcell_sandboxes.container import complaints, uv
from evalcell_sandboxes.errors import DependencyProblem
from evalcell_sandboxes.requirements import applying, requirement
from evalcell_sandboxes.sandbox import Progress

_RESOLVE_SECONDS = 600
_LONGEST = 16 * 1024 * 1024
_HEADER = re.compile(r"# evalcell lock 1: python >= (3\.\d{1,3}): (.+)")
# Of a marker only the characters are looked at here. What they say is for `packaging` to read.
_ENTRY = re.compile(
    r"(?P<name>[a-z0-9]+(?:-[a-z0-9]+)*)==(?P<version>[0-9A-Za-z.!+]+)(?: ; (?P<marker>[\w.,'\"()<>=!~+* -]+))? \\",
    re.ASCII,
)
_HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?P<more> \\)?")
_OUTSIDE_QUOTES = r"(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)"


class MadeFor(Struct, frozen=True):
    """What a lock answers: the oldest Python, and the requirements in normal form and order."""

    python: str
    requirements: tuple[str, ...]


def wanted(requirements: Sequence[str], python: str) -> MadeFor:
    """What a lock for these requirements must have been made for.

    Raises:
        ValueError: One of them is no requirement by name.
    """
    return MadeFor(uv.minor(python), tuple(sorted({requirement(line) for line in requirements})))


def made_for(lock: str) -> MadeFor | None:
    """What the lock says that it was made for; None where it does not say."""
    found = _HEADER.fullmatch(lock.partition("\n")[0])
    if found is None:
        return None
    try:
        made = wanted(re.split(f", {_OUTSIDE_QUOTES}", found[2]), found[1])
    except ValueError:
        return None
    return made if _header(made) == found[0] else None


def lock(
    requirements: Sequence[str],
    python: str,
    progress: Progress,
    *,
    withheld: Collection[str] = (),
    most_bytes: int = uv.MOST_BYTES,
) -> str:
    """Resolves the requirements for every platform, from that version of Python on. The installer is told of the user's
    environment but for the variables that are withheld.

    Raises:
        ValueError: One of them is no requirement by name; nothing was asked of any index.
        DependencyProblem: They cannot be resolved.
        SandboxUnavailable: uv or the index is missing.
    """
    asked = wanted(requirements, python)
    names = _names(asked)
    if not asked.requirements:
        raise ValueError("There are no requirements to lock.")
    with uv.workplace(progress, withheld) as place:
        progress(f"Resolving {names}")
        resolved = place.run(
            _arguments(asked.python),
            "".join(f"{line}\n" for line in asked.requirements),
            doing=f"resolve {names}",
            seconds=_RESOLVE_SECONDS,
            most_bytes=most_bytes,
        )
    text = f"{_header(asked)}\n{resolved}"
    try:
        check(text)
    except ValueError as error:
        raise DependencyProblem(
            f"Could not lock {names}: the index gives no lock that can be trusted, because every file needs a SHA-256 "
            f"hash and a name. {error}"
        ) from None
    return text


def check(lock: str) -> None:
    """Accepts a lock in exactly the form that `lock` gives, with or without its first line.

    Raises:
        ValueError: A line is anything else; the message holds it and its number.
    """
    if len(lock) > _LONGEST:
        raise ValueError(f"The lock is {len(lock):,} characters long, and the longest is {_LONGEST:,}. {_ANEW}")
    lines = lock.removesuffix("\n").split("\n")
    start = 1 if made_for(lock) is not None else 0
    inside = False
    for number, line in enumerate(lines[start:], start + 1):
        found = _HASH.fullmatch(line) if inside else _entry(line)
        if found is None:
            expected = "a hash as in '--hash=sha256:...'" if inside else "a package as in 'numpy==2.4.6 \\'"
            raise ValueError(f"Line {number} of the lock is {line[:200]!r}, which is not {expected}. {_ANEW}")
        inside = not inside or found["more"] is not None
    if inside:
        raise ValueError(f"The lock ends with {lines[-1][:200]!r}, where a hash must follow. {_ANEW}")


def packages(lock: str, python: str | None = None) -> tuple[str, ...]:
    """Every package of a lock as 'name==version'; with a version of Python, those that it gets on Linux."""
    found = [entry for entry in map(_ENTRY.fullmatch, lock.split("\n")) if entry is not None]
    if python is not None:
        lines = [f"{entry['name']} ; {entry['marker']}" if entry["marker"] else entry["name"] for entry in found]
        found = [entry for entry, line in zip(found, lines, strict=True) if applying([line], python)]
    return tuple(f"{entry['name']}=={entry['version']}" for entry in found)


def unmet(lock: str, requirements: Sequence[str], python: str) -> str | None:
    """A requirement that the versions in the lock do not meet on Linux with that Python; None where all are met.

    What a lock says that it was made for is only what somebody has written into it.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    locked = dict(package.split("==", 1) for package in packages(lock, python))
    for line in applying(requirements, python):
        wanted = Requirement(line)
        version = locked.get(canonicalize_name(wanted.name))
        if version is None or not wanted.specifier.contains(version, prereleases=True):
            return line
    return None


_ANEW = "Make it anew with `evalcell lock`."


def _entry(line: str) -> re.Match[str] | None:
    from packaging.markers import InvalidMarker, Marker
    from packaging.version import InvalidVersion, Version

    found = _ENTRY.fullmatch(line)
    if found is None or " -" in line:
        return None
    try:
        Version(found["version"])
        if found["marker"] is not None:
            Marker(found["marker"])
    except (InvalidVersion, InvalidMarker):
        return None
    return found


def _names(asked: MadeFor) -> str:
    names = (re.split(r"[^a-z0-9-]", line, maxsplit=1)[0] for line in asked.requirements)
    return complaints.listed(list(dict.fromkeys(names)))


def _header(made: MadeFor) -> str:
    return f"# evalcell lock 1: python >= {made.python}: {', '.join(made.requirements)}"


def _arguments(python: str) -> list[str]:
    return [
        *("pip", "compile", "-"),
        "--universal",
        *("--python-version", python),
        "--generate-hashes",
        "--no-header",
        "--no-annotate",
        "--strip-extras",
        "--no-emit-index-url",
        "--no-emit-find-links",
        "--no-emit-build-options",
        "--no-emit-index-annotation",
    ]
