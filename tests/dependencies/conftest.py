"""A package index of the tests' own, and a machine without settings."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from packages import Index, served

from evalcell_sandboxes.container import locking


@pytest.fixture
def index() -> Iterator[Index]:
    with served() as index:
        yield index


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Takes away this machine's settings of uv, pip and proxies, and gives an empty home."""
    for name in list(os.environ):
        if name.startswith(("UV_", "PIP_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(home / "system"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("EVALCELL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    return home


@pytest.fixture
def configured(index: Index, monkeypatch: pytest.MonkeyPatch) -> Index:
    """The index, with uv told of it."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.address)
    return index


@pytest.fixture
def locked() -> Callable[..., str]:
    """Writes a lock by hand, for packages that uv would not even resolve."""

    def locked(**hashes: str) -> str:
        asked = locking.wanted([name.replace("_", "-") for name in hashes], "3.11")
        header = f"# evalcell lock 1: python >= 3.11: {', '.join(asked.requirements)}\n"
        return header + "".join(
            f"{name.replace('_', '-')}==1.0 \\\n    --hash=sha256:{digest}\n" for name, digest in sorted(hashes.items())
        )

    return locked
