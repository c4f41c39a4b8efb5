"""The examples that come with evalcell: evaluators with rows to try them on, and starting points for one's own."""

from itertools import islice
from pathlib import Path

from msgspec import Struct

from evalcell.errors import UsageError, did_you_mean
from evalcell.evaluator import SUFFIXES
from evalcell_sandboxes import Language
from evalcell_sandboxes.deno import DECLARATIONS

STARTER = "starter"

_HERE = Path(__file__).resolve().parent
_ROWS = {
    "hashing_similarity": "support_answers",
    "json_distance": "extraction",
    "jargon": "support_answers",
    "rare_words": "support_answers",
    "tfidf_fitted": "support_answers",
    "tfidf_pickled": "support_answers",
}
"""The datasets that are not named after their evaluator."""
_ASSETS = {"jargon": ("jargon.txt",), "tfidf_pickled": ("tfidf_vectorizer.pkl",)}
"""The files that they ship."""


class Example(Struct, frozen=True):
    """An evaluator's source, the JSON lines of a dataset for it, and the files that lie beside it."""

    source: str
    rows: list[str]
    beside: dict[str, bytes]


def names(language: Language = Language.PYTHON) -> list[str]:
    """The examples there are in a language, the one to start from first."""
    found = (path.stem for path in _directory().glob(f"*{SUFFIXES[language]}"))
    return sorted(found, key=lambda name: (name != STARTER, name))


def example(name: str, language: Language = Language.PYTHON) -> Example:
    """The example of that name. In TypeScript, what tells an editor the types comes with it.

    Raises:
        UsageError: There is none.
    """
    known = names(language)
    if name not in known:
        raise UsageError(
            f"There is no example {name!r} in {language}; there are {', '.join(known)}.{did_you_mean(name, known)}"
        )
    rows = _directory() / f"{_ROWS.get(name, name)}.jsonl"
    beside = (
        [_directory() / asset for asset in _ASSETS.get(name, ())] if language is Language.PYTHON else [DECLARATIONS]
    )
    return Example(
        (_directory() / f"{name}{SUFFIXES[language]}").read_text(encoding="utf-8"),
        rows.read_text(encoding="utf-8").splitlines(),
        {file.name: file.read_bytes() for file in beside},
    )


def write(name: str, path: Path, count: int, language: Language = Language.PYTHON) -> tuple[Path, Path]:
    """Writes the example's source to `path` with its ending, and so many of its rows and what it needs beside it.

    Raises:
        UsageError: There is no such example, or something is in the way.
    """
    chosen = example(name, language)
    source, rows = path.with_name(path.name + SUFFIXES[language]), path.with_name(path.name + ".jsonl")
    contents = {
        source: chosen.source.encode(),
        rows: "".join(f"{row}\n" for row in islice(chosen.rows, count)).encode(),
    }
    for other, content in chosen.beside.items():
        target = path.with_name(other)
        if other == DECLARATIONS.name and target.exists():
            continue  # what tells an editor the types is there for all evaluators
        contents[target] = content
    written: list[Path] = []
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for target, content in contents.items():
            with target.open("xb") as file:  # follows no link, and replaces nothing
                written.append(target)
                file.write(content)
    except OSError as error:
        for target in written:
            target.unlink()
        if isinstance(error, FileExistsError):
            raise UsageError(f"{error.filename!r} is there already. Choose another name, or remove it.") from None
        raise UsageError(f"{str(path)!r} cannot be written: {error.strerror}.") from None
    return source, rows


def _directory() -> Path:
    """In a wheel they lie in the package, in a source tree at its top."""
    packaged = _HERE / "examples"
    return packaged if packaged.is_dir() else _HERE.parent.parent / "examples"
