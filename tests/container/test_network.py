"""A network for code that the operator grants one: it is the engine's, and without the grant there is none."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from boxed import ask, value
from promises import lacking

from evalcell_sandboxes import (
    Confinement,
    Limits,
    Network,
    Program,
    Sandbox,
    SandboxFault,
    SandboxUnavailable,
    Session,
    Site,
    sandbox,
    silent,
)
from evalcell_sandboxes.container import bases

CONNECT = """
import socket
def evaluate(output):
    try:
        with socket.create_connection((output, 8000), 3) as connection:
            return connection.recv(16).decode()
    except OSError as error:
        return type(error).__name__
"""
SERVE = """
import socket
with socket.create_server(("", 8000)) as server:
    while True:
        connection, _ = server.accept()
        with connection: connection.sendall(b"reached")
"""
LOOK = "import os\ndef evaluate(output): return eval(output)\n"


@contextmanager
def networked(wall: Sandbox, source: str, network: Network) -> Iterator[Session]:
    confinement = Confinement(limits=Limits(wall_seconds=10.0), network=network)
    with wall.open(Program(source=source, filename="evaluator.py"), confinement) as session:
        yield session


def test_code_reaches_the_engines_network_only_if_that_is_granted(starting):
    with starting(kind="bridge") as own:
        wall = sandbox("container", Site(engine=own.address))
        wall.prepare(None, silent)
        server = own.client.containers.run(bases.packed_name(), ["python3", "-c", SERVE], detach=True)
        try:
            server.reload()
            address = server.attrs["NetworkSettings"]["IPAddress"]
            with networked(wall, CONNECT, Network.FULL) as session:
                assert value(*ask(session, address)) == "reached"
            with networked(wall, CONNECT, Network.NONE) as session:
                assert value(*ask(session, address)) == "OSError", "the network is unreachable"
            with networked(wall, LOOK, Network.FULL) as session:
                status = value(*ask(session, "open('/proc/self/status').read()"))
                assert "Seccomp:\t2\n" in status
                assert "CapEff:\t0000000000000000\n" in status
                assert value(*ask(session, "[os.access(place, os.W_OK) for place in ('/', '/tmp')]")) == [False, True]
        finally:
            server.remove(force=True)


INTERFACES = "import socket\ndef evaluate(output): return sorted(name for _, name in socket.if_nameindex())\n"


def test_podman_has_the_network_that_is_granted_and_no_other(podman_wall):
    with networked(podman_wall, INTERFACES, Network.NONE) as session:
        assert value(*ask(session, "x")) == ["lo"]
    try:
        with networked(podman_wall, INTERFACES, Network.FULL) as session:
            assert len(value(*ask(session, "x"))) > 1
    except SandboxFault as fault:
        if not any(word in str(fault).lower() for word in ("netavark", "cni", "iptables")):
            raise
        lacking(f"Podman cannot make networks here: {fault}")


def test_gvisor_without_a_network_says_so(runsc_wall):
    """Its engine here has none, and its runtime would not give containers any."""
    with networked(runsc_wall, INTERFACES, Network.NONE) as session:
        assert value(*ask(session, "x")) == ["lo"]
    with (
        pytest.raises(SandboxUnavailable, match="has no network 'bridge', so code on it can reach nothing"),
        networked(runsc_wall, INTERFACES, Network.FULL),
    ):
        pytest.fail("it was opened")


def test_an_engine_without_a_network_says_so(container_wall, engine):
    if any(network["Name"] == "bridge" for network in engine.api.networks()):
        pytest.skip("this engine has a network")
    with (
        pytest.raises(SandboxUnavailable, match="has no network 'bridge', so code on it can reach nothing. Start it"),
        networked(container_wall, CONNECT, Network.FULL),
    ):
        pytest.fail("it was opened")
