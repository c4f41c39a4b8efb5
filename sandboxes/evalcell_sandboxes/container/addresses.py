"""Finds out where the engine is: by what the operator has said, or else as the docker command would.

Contexts are read here and not by way of the client: that takes a context which is not there, or cannot be read, for the
default one, and would so have rows run somewhere else than they should.
"""

import hashlib
import ipaddress
import json
import os
import re
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from evalcell_sandboxes.errors import SandboxUnavailable
from evalcell_sandboxes.site import ENVIRONMENT, Site, docker_config

DEFAULT = "unix:///var/run/docker.sock"
_VARIABLE = ENVIRONMENT["engine"]
_NO_CONTEXT = "default"
"""The name that docker gives to having none."""
_SCHEMES = ("unix", "tcp", "http", "https")
_WITHOUT_TLS, _NEVER_TLS, _ALWAYS_TLS = "unix", "http://", "https://"
_PATH_BYTES = 107
"""A longer path does not fit the kernel's address of a socket."""
_HOST = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[(?P<v6>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{0,5}))?(?P<more>[/?#].*)?")
_PORTS = range(1, 65_536)
_USUAL_PORTS = "usually 2376 with TLS and 2375 without"
_PODMAN = "podman/podman.sock"


class Address(Struct, frozen=True):
    """Where an engine is, who says so, and how one proves to each other who one is.

    `certificates` is a directory with `cert.pem`, `key.pem` and `ca.pem`, as far as there are any; `tls` says that the
    connection is encrypted, `verified` that the engine has to prove itself.
    """

    url: str
    source: str
    tls: bool = False
    verified: bool = True
    certificates: str = ""

    @property
    def is_here(self) -> bool:
        """Whether it is an engine of this machine, as far as that can be told."""
        return self.url.startswith("unix://")


def find(site: Site) -> Address:
    """Where the engine of a site is.

    Raises:
        SandboxUnavailable: What is said makes no sense, or names a context that cannot be used.
    """
    engine, source = _said(site)
    if not engine or engine == _NO_CONTEXT:
        return Address(DEFAULT, source)
    if wrong := problem(engine):
        raise _unusable(f"{source} names no engine: {wrong}")
    return _of_context(engine, source) if _is_context(engine) else _of_environment(engine, source)


def problem(engine: str) -> str | None:
    """What is wrong with how an engine is named, and the next step; None if nothing is. Nobody is asked for that."""
    if not engine:
        return None
    if not engine.isprintable() or " " in engine:
        return f"{engine!r} has spaces or control characters in it. Take them out."
    if not _is_context(engine):
        return _wrong_address(engine)
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", engine):
        return None
    return (
        f"{engine!r} is neither an address such as {DEFAULT} nor the name of a docker context. See: docker context ls"
    )


def settled(site: Site) -> Site:
    """The same site with its engine said, so that it means the same wherever and whenever it is looked at."""
    return structs.replace(site, engine=_said(site)[0] or _NO_CONTEXT)


def sockets_of_podman() -> list[Path]:
    """Where Podman would answer, if it does. It is never used unasked: it is for the operator to say whom he trusts."""
    directories = (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.getuid()}", "/run")
    sockets = dict.fromkeys(Path(directory) / _PODMAN for directory in directories if directory)
    return [path for path in sockets if _exists(path)]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # in a directory that is not ours to look into
        return False


def _said(site: Site) -> tuple[str, str]:
    """The address or the context, and who has named it. Neither where nobody has."""
    variable = os.environ.get(_VARIABLE, "")
    if site.engine:
        return site.engine, _VARIABLE if site.engine == variable else "the settings"
    if variable:
        return variable, _VARIABLE
    if context := os.environ.get("DOCKER_CONTEXT", ""):
        return context, "DOCKER_CONTEXT"
    current = _table(docker_config() / "config.json", "docker's settings").get("currentContext")
    return (str(current), "docker's settings") if current else ("", "the default")


def _is_context(engine: str) -> bool:
    return not any(mark in engine for mark in ":/")


def _wrong_address(url: str) -> str | None:
    if not url.isprintable():
        return f"{url!r} has control characters in it. Take them out."
    scheme, separator, rest = url.partition("://")
    if not separator:
        return f"{url!r} does not say how to speak there. {_meant(url)}"
    if scheme not in _SCHEMES:
        return f"{url!r} begins with none of {', '.join(_SCHEMES)}.{_instead(scheme)}"
    return _wrong_path(url, rest) if scheme == _WITHOUT_TLS else _wrong_host(url, rest)


def _meant(url: str) -> str:
    """What an address without `://` was probably meant to be, if that would be one."""
    scheme, colon, rest = url.partition(":")
    if not colon or scheme not in _SCHEMES:
        scheme, rest = ("unix" if "/" in url else "tcp"), url
    place = rest.lstrip("/")
    guess = f"{scheme}:///{place}" if scheme == _WITHOUT_TLS else f"{scheme}://{place}"
    if _wrong_address(guess) is None:
        return f"Did you mean {guess} ?"
    return f"Name a socket as in {DEFAULT}, or a host and its port, {_USUAL_PORTS}, as in tcp://127.0.0.1:2376"


def _wrong_path(url: str, path: str) -> str | None:
    if not path.strip("/"):
        return f"{url!r} names no socket. Name its path, as in {DEFAULT}"
    if "?" in path or "#" in path:  # the client would leave out what follows, or refuse it
        return f"{url!r} has a ? or # in it, which no address of a socket may have. Make a link to it, and name that."
    if not path.startswith("/"):
        return f"{url!r} has no path from the root on. Did you mean unix:///{path} ?"
    if len(os.fsencode(path)) > _PATH_BYTES:
        return f"{url!r} is too long for a socket: it may have {_PATH_BYTES} bytes. Make a link to it, and name that."
    return None


def _wrong_host(url: str, rest: str) -> str | None:
    parts = _HOST.fullmatch(rest)
    if parts is None or not _is_v6(parts["v6"] or "::") or int(parts["port"] or 1) not in _PORTS:
        return f"{url!r} is no address. Name a host and a port between 1 and {_PORTS[-1]}, such as tcp://127.0.0.1:2376"
    if not parts["port"]:
        return (
            f"{url!r} has no port, and there is none that all engines have: it is {_USUAL_PORTS}. Add it to the host."
        )
    if parts["more"] not in (None, "/"):  # the client would put it before all that it asks for, or refuse it
        return f"{url!r} has {parts['more']!r} after its port, where nothing may be. Take it out."
    return None


def _is_v6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _instead(scheme: str) -> str:
    if scheme != "ssh":
        return ""
    return (
        " Forward the engine's socket instead, with `ssh -N -L /path/engine.sock:/var/run/docker.sock HOST`, and "
        f"name unix:///path/engine.sock in {_VARIABLE}."
    )


def _of_environment(url: str, source: str) -> Address:
    """An address as it was said, with the certificates that the environment names for it."""
    verify, directory = os.environ.get("DOCKER_TLS_VERIFY", ""), os.environ.get("DOCKER_CERT_PATH", "")
    if url.startswith(_WITHOUT_TLS) or not (verify or directory):
        return Address(url, source)
    if not verify:
        raise _unusable(
            "DOCKER_CERT_PATH is set and DOCKER_TLS_VERIFY is not, so anybody could pass for the engine. Set "
            "DOCKER_TLS_VERIFY=1, or unset both."
        )
    _require_encryption(url, "DOCKER_TLS_VERIFY asks")
    directory = directory or str(docker_config())
    for name in ("cert.pem", "key.pem", "ca.pem"):
        if not (Path(directory) / name).is_file():
            raise _unusable(f"there is no {name} in {directory!r}, which DOCKER_CERT_PATH names. Unset it, or mend it.")
    return Address(url, source, tls=True, certificates=directory)


def _require_encryption(url: str, who_asks: str) -> None:
    if url.startswith(_NEVER_TLS):
        raise _unusable(
            f"{who_asks} for TLS, and {url!r} never has it. Name the engine with tcp:// or https:// instead."
        )


def _of_context(name: str, source: str) -> Address:
    key = hashlib.sha256(name.encode()).hexdigest()
    contexts = docker_config() / "contexts"
    file = contexts / "meta" / key / "meta.json"
    if not file.is_file():
        raise _unusable(f"there is no docker context {name!r}, which {source} names. See: docker context ls")
    endpoints = _table(file, f"the docker context {name!r}").get("Endpoints")
    endpoint = endpoints.get("docker") if isinstance(endpoints, dict) else None
    url = endpoint.get("Host") if isinstance(endpoint, dict) else None
    if not isinstance(endpoint, dict) or not isinstance(url, str) or not url:
        raise _unusable(f"the docker context {name!r} names no engine, in {str(file)!r}. Make it anew.")
    certificates = contexts / "tls" / key / "docker"
    held, unverified = certificates.is_dir(), bool(endpoint.get("SkipTLSVerify"))
    tls = not url.startswith(_WITHOUT_TLS) and (held or unverified)
    if wrong := _wrong_address(url):
        raise _unusable(f"the docker context {name!r} names no engine: {wrong}")
    if tls:
        _require_encryption(url, f"the docker context {name!r} asks")
    address = Address(
        url,
        f"the docker context {name!r}",
        tls=tls,
        verified=not unverified,
        certificates=str(certificates) if tls and held else "",
    )
    _require_proof(address)
    return address


def _require_proof(address: Address) -> None:
    """Docker asks only the context how to connect. Whoever has set the variable would not be told that it is void."""
    if address.is_here or not os.environ.get("DOCKER_TLS_VERIFY"):
        return
    encrypted = address.tls or address.url.startswith(_ALWAYS_TLS)
    if not (encrypted and address.verified):
        how = "does not have the engine prove itself" if encrypted else "has no certificates"
        raise _unusable(
            f"DOCKER_TLS_VERIFY asks for TLS, and {address.source}, which names {address.url!r}, {how}. Mend that with "
            "`docker context update`, or unset DOCKER_TLS_VERIFY."
        )


def _table(file: Path, what: str) -> dict[str, Any]:
    """A file with settings; empty where there is none.

    Raises:
        SandboxUnavailable: It cannot be read, so nobody knows what it says.
    """
    try:
        found = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise _unusable(f"{what} cannot be read from {str(file)!r}: {error}. Mend it, or set {_VARIABLE}.") from error
    if not isinstance(found, dict):
        raise _unusable(f"{what} in {str(file)!r} are not a table. Mend it, or set {_VARIABLE}.")
    return found


def _unusable(reason: str) -> SandboxUnavailable:
    return SandboxUnavailable("container", reason)
