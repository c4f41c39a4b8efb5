"""Where packages come from: the user's own settings of uv, and pip's where uv has none.

uv reads its own variables and its user's and system's `uv.toml` by itself. pip's settings it does not know, and most
companies with an index of their own have set pip up for it. They are handed on as variables of uv's process, never as
arguments: addresses may hold credentials, and everybody on the machine can read arguments.

Directories of this machine are handed on only where they are all that pip would look at. What lies in them was put
there for this machine's Python and platform, not for the container's; uv takes a package from the first index that has
it, so they would hide everything else, and a lock made from them would fit nowhere else.
"""

import configparser
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

_INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
_INDEX_SETTINGS = ("index", "index-url", "extra-index-url", "find-links", "no-index")
_TLS_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS")
_PROXY_VARIABLES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "https_proxy", "http_proxy")
_PIP_SECTIONS = ("global", "install")
_STEERS = re.compile(r"(UV|PIP|XDG|SSL)_.*|(ALL|HTTPS?|NO)_PROXY|NETRC|HOME|PATH", re.IGNORECASE)


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Gives the variables that make uv look where pip would look. Empty where uv has settings of its own."""
    pip = _pip_settings(environ)
    found = {}
    if not _configured(environ):
        main = _reachable(pip.get("index-url", ""), local=True)[:1]
        local = _says_yes(pip.get("no-index", "")) or any(not _is_remote(address) for address in main)
        found = {
            "UV_DEFAULT_INDEX": " ".join(main),
            "UV_INDEX": " ".join(_reachable(pip.get("extra-index-url", ""), local=local)),
            "UV_FIND_LINKS": ",".join(_reachable(pip.get("find-links", ""), local=local)),
        }
    if not any(environ.get(name) for name in _TLS_VARIABLES):
        found["SSL_CERT_FILE"] = pip.get("cert", "")
    if not any(environ.get(name) for name in _PROXY_VARIABLES):
        found["ALL_PROXY"] = pip.get("proxy", "")
    return {name: value for name, value in found.items() if value}


def steers(variable: str) -> bool:
    """Whether a variable may decide where packages come from, for us or for uv."""
    return _STEERS.fullmatch(variable) is not None


def without_index(environ: Mapping[str, str]) -> bool:
    """Whether pip is told to ask no index at all and uv is told nothing; uv has a flag for it and no variable."""
    return _says_yes(_pip_settings(environ).get("no-index", "")) and not _configured(environ)


def _configured(environ: Mapping[str, str]) -> bool:
    """Whether uv itself has been told where packages come from."""
    if any(environ.get(name) for name in _INDEX_VARIABLES):
        return True
    return any(_names_an_index(file) for file in _uv_files(environ))


def _uv_files(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("UV_NO_CONFIG"):
        return
    if configured := environ.get("UV_CONFIG_FILE"):
        yield Path(configured)
        return
    yield _user_config(environ) / "uv" / "uv.toml"
    for directory in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"):
        yield Path(directory) / "uv" / "uv.toml"
    yield Path("/etc/uv/uv.toml")


def _names_an_index(file: Path) -> bool:
    try:
        settings = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False  # not there, or uv will say itself what is wrong with it
    tables = (settings, settings.get("pip", {}))
    return any(name in table for table in tables if isinstance(table, dict) for name in _INDEX_SETTINGS)


def _pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """What pip would go by: its files from the system's to the user's own, then its variables."""
    by_section: dict[str, dict[str, str]] = {section: {} for section in _PIP_SECTIONS}
    for file in _pip_files(environ):
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, configparser.Error):
            continue
        for section in _PIP_SECTIONS:
            if parser.has_section(section):
                by_section[section].update((_plain(key), value or "") for key, value in parser.items(section))
    own = {_plain(name[4:]): value for name, value in environ.items() if name.startswith("PIP_") and value}
    return {**by_section["global"], **by_section["install"], **own}


def _pip_files(environ: Mapping[str, str]) -> Iterator[Path]:
    configured = environ.get("PIP_CONFIG_FILE")
    if configured == os.devnull:  # pip's way to say: read no file at all
        return
    for directory in environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":"):
        yield Path(directory) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    home = Path(environ.get("HOME") or "/")
    yield home / ".pip" / "pip.conf"
    yield _user_config(environ) / "pip" / "pip.conf"
    if sys.platform == "darwin":
        yield home / "Library" / "Application Support" / "pip" / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if configured:
        yield Path(configured)


def _user_config(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "/") / ".config")


def _plain(key: str) -> str:
    return key.lower().replace("_", "-").removeprefix("--")


def _says_yes(value: str) -> bool:
    return value.strip().lower() in ("1", "true", "yes", "on", "y", "t")


def _reachable(addresses: str, *, local: bool) -> list[str]:
    """Leaves out directories that are not there: pip passes over them, and uv would stop."""
    found = [address if "://" in address else _absolute(address) for address in addresses.split()]
    return [address for address in found if _is_remote(address) or (local and _path(address).exists())]


def _is_remote(address: str) -> bool:
    return address.lower().startswith(("http://", "https://"))


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())  # uv is run in a directory of its own


def _path(address: str) -> Path:
    parts = urlsplit(address)
    return Path(url2pathname(parts.path) if parts.scheme == "file" else address)
