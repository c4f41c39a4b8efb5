"""The examples that come with evalcell: evaluators with rows to try them on, and starting points for one's own."""

from itertools import islice
from pathlib import Path

from msgspec import Struct

from evalcell.errors import UsageError, did_you_mean

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
    """An evaluator's source, the JSON lines of a dataset for it, and the files that it ships."""

    source: str
    rows: list[str]
    assets: dict[str, bytes]


def names() -> list[str]:
    """The examples there are, the one to start from first."""
    return sorted((path.stem for path in _directory().glob("*.py")), key=lambda name: (name != STARTER, name))


def example(name: str) -> Example:
    """The example of that name.

    Raises:
        UsageError: There is none.
    """
    if name not in names():
        raise UsageError(f"There is no example {name!r}; there are {', '.join(names())}.{did_you_mean(name, names())}")
    rows = _directory() / f"{_ROWS.get(name, name)}.jsonl"
    return Example(
        (_directory() / f"{name}.py").read_text(encoding="utf-8"),
        rows.read_text(encoding="utf-8").splitlines(),
        {asset: (_directory() / asset).read_bytes() for asset in _ASSETS.get(name, ())},
    )


def write(name: str, path: Path, count: int) -> tuple[Path, Path]:
    """Writes the example's source to `path` with `.py` at its end, and so many of its rows and its assets beside it.

    Raises:
        UsageError: There is no such example, or something is in the way.
    """
    chosen = example(name)
    source, rows = path.with_name(path.name + ".py"), path.with_name(path.name + ".jsonl")
    contents = {
        source: chosen.source.encode(),
        rows: "".join(f"{row}\n" for row in islice(chosen.rows, count)).encode(),
    }
    contents |= {path.with_name(asset): content for asset, content in chosen.assets.items()}
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
