"""Sandbox configurations under names: kept in the data directory, and shared by all evaluators that are run in them."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from evalcell.configuration import Configuration, Named, Operator
from evalcell.data import data_dir, data_path
from evalcell.errors import UsageError, did_you_mean
from evalcell_sandboxes import names
from evalcell_sandboxes.caching import replacing
from evalcell_sandboxes.registry import known

_DIRECTORY = "sandboxes"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_MOST_BYTES = 1024**2


def operator(**said: Any) -> Operator:
    """What somebody says for a run, with the configuration that `sandbox` names, unless that is a wall.

    Raises:
        UsageError: Something of it makes no sense, or there is no such sandbox.
    """
    name = said.get("sandbox")
    if name is None or known(name):
        return Operator(**said)
    return Operator(**said, named=find(name))


def add(name: str, configuration: Configuration, *, replace: bool = False) -> None:
    """Keeps a configuration.

    Raises:
        UsageError: It says nothing, or its name cannot be used, or is taken and not to be replaced.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]!r} cannot be a name: use up to 64 of a-z, 0-9, '-' and '_', such as 'text-metrics'."
        )
    if known(name):
        raise UsageError(f"{name!r} is the name of a wall. Choose another.")
    if not configuration.said():
        raise UsageError("That sandbox would say nothing. Say something about it, such as --dep, --limit or --env.")
    path = data_dir(_DIRECTORY) / f"{name}.json"
    text = configuration.model_dump_json(exclude_defaults=True, exclude_none=True, indent=2) + "\n"
    try:
        with replacing(path) as file:
            file.write_text(text)
            if not replace:
                os.link(file, path)  # which, as against replacing it, fails where there is one
    except FileExistsError:
        raise UsageError(
            f"There is a sandbox {name!r} already. Replace it with --replace, or choose another name."
        ) from None


def find(name: str) -> Named:
    """The configuration of that name.

    Raises:
        UsageError: There is none, or what is kept makes no sense.
    """
    path = _path(name)
    if known(name):
        raise UsageError(f"{name!r} is a wall, and no sandbox of yours: nothing is kept about it.")
    if path is None or not path.is_file():
        there = (*names(), *kept_names())
        listed = ", ".join(map(repr, there))
        raise UsageError(f"There is no sandbox {name!r}; there are {listed}.{did_you_mean(name, there)}")
    return _read(path)


def found() -> Iterator[Named | UsageError]:
    """Every configuration, by name; or what is wrong with it."""
    for name in kept_names():
        try:
            yield find(name)
        except UsageError as error:
            yield error


def remove(name: str) -> None:
    """Forgets a configuration. Layers that were built for it stay until they are pruned.

    Raises:
        UsageError: There is none.
    """
    path = _path(name)
    if path is None or not path.exists():
        find(name)
    else:
        path.unlink()


def _path(name: str) -> Path | None:
    return data_path() / _DIRECTORY / f"{name}.json" if _NAME.fullmatch(name) else None


def kept_names() -> list[str]:
    """The names that configurations are kept under."""
    paths = (data_path() / _DIRECTORY).glob("*.json")
    return sorted(path.stem for path in paths if _NAME.fullmatch(path.stem) and not known(path.stem) and path.is_file())


def _read(path: Path) -> Named:
    data_dir(_DIRECTORY)  # refuses what others can write to
    again = f"Mend {str(path)!r}, or remove it with: evalcell sandboxes rm {path.stem}"
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES)
        return Named(path.stem, Configuration.model_validate(msgspec.json.decode(text)))
    except OSError as error:
        raise UsageError(f"The sandbox {path.stem!r} cannot be read: {error.strerror}. {again}") from None
    except (UsageError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"The sandbox {path.stem!r} makes no sense: {str(error).rstrip('.')}. {again}") from None
