"""Finds the files that an evaluator ships, beside it and nowhere else.

The author names them, and may have written the directory that they lie in. So a name is a plain relative path, and is
followed one directory at a time from the evaluator's own: none of the steps follows a link, whoever puts one there
meanwhile. What is opened is looked at once it is open. Contents are copied and hashed, and never looked into.
"""

import contextlib
import os
import stat
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from evalcell.errors import EvaluatorError, did_you_mean_file
from evalcell.evaluator import Evaluator
from evalcell_sandboxes import Asset, Limits, assets

MOST = 1_000
_MOST_CHARACTERS = 400
_PART_BYTES = 255
_INTO = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a pipe would wait for somebody at its other end, and a terminal could become ours.
_AT_THE_END = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def ship(evaluator: Evaluator, names: Sequence[str], limits: Limits) -> tuple[Asset, ...]:
    """Copies the files of those names into the store, and gives them by their digests, sorted by name.

    Raises:
        EvaluatorError: A name is none, or what it names is not a regular file beside the evaluator, or too large.
    """
    if not names:
        return ()
    if evaluator.path is None:
        raise _refused(
            f"The source asks for the asset {names[0]!r}, but it lies in no directory. Write it to a file beside them."
        )
    _check_names(evaluator, names)
    found, left = [], limits.asset_bytes
    for name in sorted(names):
        digest, size = _kept(evaluator.path.parent, name, left, limits)
        left -= size
        found.append(Asset(name, digest))
    return tuple(found)


def _check_names(evaluator: Evaluator, names: Sequence[str]) -> None:
    if len(names) > MOST:
        raise _refused(f"The file asks for {len(names):,} assets; there can be {MOST:,}. Pack them into an archive.")
    seen = set()
    for name in names:
        if why := _why_not(name):
            raise _refused(
                f"The file asks for the asset {_short(name)}, which {why}. "
                "Name files beside the evaluator, such as 'words.txt' or 'data/words.txt'."
            )
        same = unicodedata.normalize("NFC", name)
        if same in seen:
            raise _refused(f"The file asks for the asset {name!r} twice. Leave one of them out.")
        if same == unicodedata.normalize("NFC", evaluator.filename):
            raise _refused(
                f"The file asks for itself, {name!r}, as an asset. Leave it out: the source is always there."
            )
        seen.add(same)


def _why_not(name: str) -> str | None:
    """What is wrong with a name, whatever is in the directory."""
    parts = name.split("/")
    problems = {
        "is empty": not name,
        "holds a control character": not name.isprintable(),
        "holds a backslash": "\\" in name,
        "is an absolute path": name.startswith("/"),
        "leads out of its directory": ".." in parts,
        "holds a step that leads nowhere": "" in parts or "." in parts,
        "begins with '.wh.', by which layers of images say that a file is gone": any(map(_is_whiteout, parts)),
        "is too long": len(name) > _MOST_CHARACTERS or any(len(os.fsencode(part)) > _PART_BYTES for part in parts),
    }
    return next((problem for problem, is_so in problems.items() if is_so), None)


def _is_whiteout(part: str) -> bool:
    return part.startswith(".wh.")


def _kept(home: Path, name: str, left: int, limits: Limits) -> tuple[str, int]:
    try:
        with _opened(home, name) as file:
            return assets.keep(file, left)
    except assets.TooLarge:
        raise _refused(
            f"The assets are larger than {limits.asset_bytes:,} bytes with {name!r}. "
            "Raise the limit with --limit asset_bytes=N."
        ) from None
    except assets.Changed:
        raise _refused(f"The asset {name!r} was written to while it was copied. Run it again.") from None
    except FileNotFoundError:
        hint = did_you_mean_file(home / name)
        raise _refused(
            f"There is no asset {name!r} beside the evaluator: no file {str(home / name)!r}.{hint}"
        ) from None
    except OSError as error:
        raise _refused(f"The asset {name!r} cannot be read: {error.strerror}.") from None


@contextlib.contextmanager
def _opened(home: Path, name: str) -> Iterator[BinaryIO]:
    """The regular file of that name, opened without following a link on the way below the evaluator's directory."""
    *directories, last = name.split("/")
    with contextlib.ExitStack() as stack:
        at = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, at)
        for step in directories:
            _check(name, step, at, stat.S_ISDIR, "is not a directory")
            at = _open(name, step, _INTO, at)
            stack.callback(os.close, at)
        _check(name, last, at, stat.S_ISREG, "is not a regular file")
        file = stack.enter_context(os.fdopen(_open(name, last, _AT_THE_END, at), "rb"))
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # it was another one a moment ago
            raise _refused(f"The asset {name!r} is not a regular file. Put the file itself beside the evaluator.")
        yield file


def _check(name: str, step: str, at: int, fits: Callable[[int], bool], otherwise: str) -> None:
    """For the message, and so that no device is opened; what is opened afterwards is looked at once more."""
    mode = os.stat(step, dir_fd=at, follow_symlinks=False).st_mode
    if not fits(mode):
        what = "is a symbolic link, and links are not followed" if stat.S_ISLNK(mode) else otherwise
        where = "" if step == name else f" ({step!r})"
        raise _refused(f"The asset {name!r}{where} {what}. Put the file itself beside the evaluator.")


def _open(name: str, step: str, flags: int, at: int) -> int:
    try:
        return os.open(step, flags, dir_fd=at)
    except OSError as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise _refused(f"The asset {name!r} changed while it was opened: {error.strerror}. Run it again.") from None


def _short(name: str) -> str:
    return repr(name if len(name) <= _MOST_CHARACTERS else f"{name[:_MOST_CHARACTERS]}...")


def _refused(message: str) -> EvaluatorError:
    return EvaluatorError("asset", message)
