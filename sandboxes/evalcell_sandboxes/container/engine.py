"""The container engine as the operator has configured it, and what of ours is left on it."""

import contextlib
import os
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from datetime import datetime
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evalcell_sandboxes.container.addresses import Address, find
from evalcell_sandboxes.container.answers import look_at_all
from evalcell_sandboxes.container.failure import EngineGone, silent, translated
from evalcell_sandboxes.site import Site

if TYPE_CHECKING:
    from docker import APIClient, DockerClient
    from docker.tls import TLSConfig

OWNER = "evalcell.owner"
"""The label of every container of ours: which process it belongs to."""
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Engines differ in what they call machines."""
_API_SECONDS = 120
_FIRST_SECONDS = 10
"""What an engine has for its first answer, which is its version: one that is there has it at once."""
_ABANDONED_SECONDS = 3600.0
_RESTART_SECONDS = 5.0
_CREATING_SECONDS = 1.0
_T = TypeVar("_T")


class Engine:
    """An engine that containers are made on, as a site names it. It is connected to when that is first needed."""

    def __init__(self, site: Site) -> None:
        self.base = site.base
        self.runtime = site.runtime
        self.withheld = site.withheld
        self._site = site

    @cached_property
    def found(self) -> Address:
        """Where it is, and who says so.

        Raises:
            SandboxUnavailable: That cannot be told.
        """
        return find(self._site)

    @property
    def address(self) -> str:
        return self.found.url

    @property
    def client(self) -> "DockerClient":
        """The client of the engine. Whether anybody answers is seen when it is used.

        Raises:
            SandboxUnavailable: The settings make no sense, or nobody answers.
        """
        with self.translated("its version was asked for"):
            return _client(self.found, tuple(sorted(self.withheld)))

    @property
    def api(self) -> "APIClient":
        """The same, for what has no object of its own."""
        return self.client.api

    @cached_property
    def info(self) -> dict[str, Any]:
        """What it says of itself."""
        with self.translated("it was asked what it is"):
            return dict(self.api.info())

    @cached_property
    def is_podman(self) -> bool:
        """Whether it is Podman, which speaks as Docker does."""
        with self.translated("its version was asked for"):
            components = self.api.version().get("Components") or ()
        return any(component.get("Name") == "Podman Engine" for component in components)

    @property
    def version(self) -> str:
        return str(self.info.get("ServerVersion", "")).partition("+")[0]

    @property
    def kernel(self) -> str:
        """The kernel that it runs on. A runtime may give containers another."""
        return str(self.info.get("KernelVersion", ""))

    @property
    def machine(self) -> str:
        """What it runs on, which need not be this machine, named as `uname -m` does."""
        told = str(self.info.get("Architecture", ""))
        return _MACHINES.get(told, told)

    def translated(self, doing: str) -> AbstractContextManager[None]:
        """Raises what goes wrong meanwhile as what it means to us. `doing` completes "while ..."."""
        return translated(self.address, doing)

    def patiently(self, make: Callable[[], _T]) -> _T:
        """What is made on the engine, also if that is just being restarted: then it is tried for some seconds."""
        until = time.monotonic() + _RESTART_SECONDS
        while True:
            try:
                return make()
            except EngineGone:
                if time.monotonic() > until:
                    raise
                time.sleep(_RESTART_SECONDS / 10)

    def discard(self, container: str) -> None:
        """Removes a container, and what it had to itself; whatever of it is still there."""
        with contextlib.suppress(Exception):  # it is gone already, or the next run will see to it
            self.api.remove_container(container, force=True, v=True)
        with contextlib.suppress(Exception):
            if self.is_podman:
                self.api.remove_volume(container, force=True)

    def sweep(self) -> int:
        """Removes the containers of processes that are gone, and says how many there were."""
        swept = 0
        with self.translated("leftovers of former runs were looked for"):
            found = self.api.containers(all=True, filters={"label": OWNER})
        for container in found:
            if _is_left(container):
                with contextlib.suppress(Exception):  # somebody else may just do the same
                    self.api.remove_container(container["Id"], force=True, v=True)
                    swept += 1
        if self.is_podman:
            self._sweep_volumes()
        return swept

    def _sweep_volumes(self) -> None:
        with self.translated("leftovers of former runs were looked for"):
            found = self.api.volumes(filters={"label": OWNER})["Volumes"] or ()
        for volume in found:
            with contextlib.suppress(Exception):  # a container has it, and so it is in use
                created = datetime.fromisoformat(volume["CreatedAt"]).timestamp()
                if _is_abandoned(volume["Labels"].get(OWNER, ""), created):
                    self.api.remove_volume(volume["Name"])

    def sweep_out(self, expected: int) -> None:
        """Removes what processes have left that were just killed. So many of them may have been creating a container:
        the engine does not stop doing that when nobody waits for it any more, so it is looked for a little longer.
        """
        until = time.monotonic() + _CREATING_SECONDS
        swept = self.sweep()
        while swept < expected and time.monotonic() < until:
            time.sleep(_CREATING_SECONDS / 10)
            swept += self.sweep()


@cache
def _client(address: Address, withheld: tuple[str, ...] = ()) -> "DockerClient":
    """One for each engine in a process, and for what is withheld: it keeps its connections. It may start a program that
    knows the passwords of registries, for which what is withheld is empty.
    """
    import docker

    tls = _credentials(address) if address.tls else False
    client = docker.DockerClient(
        base_url=address.url,
        tls=tls,
        timeout=_API_SECONDS,
        version=_api_version(address, tls=tls),
        credstore_env=dict.fromkeys(withheld, ""),
    )
    _make_wary(client.api, address)
    return client


def _make_wary(api: "APIClient", address: Address) -> None:
    """Has a client believe neither the environment nor the engine."""
    api.trust_env = False  # it may name proxies and authorities, for other things than this
    look_at_all(api, address.url)


def _api_version(address: Address, *, tls: "TLSConfig | bool") -> str:
    """What the engine speaks, which is the first that it is asked for."""
    from docker import APIClient
    from docker.constants import MINIMUM_DOCKER_API_VERSION
    from requests.exceptions import ReadTimeout

    with closing(
        APIClient(base_url=address.url, tls=tls, timeout=_FIRST_SECONDS, version=MINIMUM_DOCKER_API_VERSION)
    ) as first:
        _make_wary(first, address)
        try:
            return str(first.version(api_version=False)["ApiVersion"])
        except ReadTimeout:
            raise silent(address.url, _FIRST_SECONDS) from None


def _credentials(address: Address) -> "TLSConfig":
    """How the engine is known, and we to it."""
    from docker.tls import TLSConfig

    held = {name: Path(address.certificates) / f"{name}.pem" for name in ("cert", "key", "ca")}
    held = {name: path for name, path in held.items() if address.certificates and path.is_file()}
    return TLSConfig(
        client_cert=(str(held["cert"]), str(held["key"])) if {"cert", "key"} <= held.keys() else None,
        ca_cert=str(held["ca"]) if "ca" in held else None,
        verify=address.verified,
    )


def owner() -> str:
    """Names this process, so that others can tell whether it still lives."""
    return f"{_machine()} {os.getpid()} {_started(os.getpid())}"


def _machine() -> str:
    """Names this machine since it was started, and the namespace in which our process numbers mean something."""
    parts = []
    for read in (_boot, _namespace, lambda: os.uname().nodename):
        with contextlib.suppress(OSError):
            parts.append(read())
    return "-".join(parts).replace(" ", "_")


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _started(pid: int) -> str:
    """When a process was started, in ticks: its number may be given to another. Empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def _lives(pid: int) -> bool:
    """Whether there is a process of this number, where no more can be known of it than that."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's by now, but there is one
        pass
    return True


def _is_left(container: dict[str, Any]) -> bool:
    owner, runs = (container["Labels"] or {}).get(OWNER, ""), container["State"] == "running"
    return (_is_known(owner) or not runs) and _is_abandoned(owner, float(container["Created"]))


def _is_abandoned(owner: str, created: float) -> bool:
    if not owner or _is_known(owner):  # somebody else's, who has started one of our images; or a process of ours
        return _is_gone(owner)
    return time.time() - created > _ABANDONED_SECONDS


def _is_known(owner: str) -> bool:
    """Whether its process is one that we could see."""
    machine, _, process = owner.partition(" ")
    return machine == _machine() and re.fullmatch("[0-9]{1,9}", process.partition(" ")[0]) is not None


def _is_gone(owner: str) -> bool:
    """Whether its process was one that we could see, and is no more."""
    if not _is_known(owner):
        return False
    pid, _, started = owner.partition(" ")[2].partition(" ")
    return _started(int(pid)) != started if started else not _lives(int(pid))
