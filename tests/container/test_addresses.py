"""Which engine is meant: by address, by context, by nothing at all; and what is said when that cannot be told."""

import hashlib
import json
import random
import re
import socket

import pytest
from docker.utils import parse_host

from evalcell_sandboxes import SandboxUnavailable, Site, sandbox
from evalcell_sandboxes.container import addresses, prereqs
from evalcell_sandboxes.container import engine as engines
from evalcell_sandboxes.container.engine import Engine
from evalcell_sandboxes.site import ENVIRONMENT, configuration, here


@pytest.fixture(autouse=True)
def nothing_said(tmp_path, monkeypatch):
    """An environment that names no engine, and a home in which nobody has configured any."""
    for name in (*ENVIRONMENT.values(), "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".docker").mkdir()


@pytest.fixture
def context(tmp_path):
    """Writes a context as the docker command does."""

    def context(name, host, *certificates, place=tmp_path / ".docker", **endpoint):
        key = hashlib.sha256(name.encode()).hexdigest()
        directory = place / "contexts" / "meta" / key
        directory.mkdir(parents=True)
        told = {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host, **endpoint}}}
        (directory / "meta.json").write_text(json.dumps(told))
        held = place / "contexts" / "tls" / key / "docker"
        for certificate in certificates:
            held.mkdir(parents=True, exist_ok=True)
            (held / certificate).write_text("")
        return held

    return context


@pytest.fixture
def current(tmp_path):
    """Makes a context the current one."""
    return lambda name: (tmp_path / ".docker" / "config.json").write_text(json.dumps({"currentContext": name}))


def found(site=None):
    address = addresses.find(site or Site())
    return address.url, address.source


def test_without_a_word_it_is_the_default_socket():
    assert found() == ("unix:///var/run/docker.sock", "the default")


def test_what_is_said_first_counts(context, current, monkeypatch):
    for name in ("current", "variable", "named"):
        context(name, f"tcp://{name}:2375")
    current("current")
    assert found() == ("tcp://current:2375", "the docker context 'current'")
    monkeypatch.setenv("DOCKER_CONTEXT", "variable")
    assert found() == ("tcp://variable:2375", "the docker context 'variable'")
    monkeypatch.setenv("DOCKER_HOST", "tcp://host:2375")
    assert found() == ("tcp://host:2375", "DOCKER_HOST")
    assert found(here()) == ("tcp://host:2375", "DOCKER_HOST")
    assert found(Site(engine="named")) == ("tcp://named:2375", "the docker context 'named'")
    assert found(Site(engine="unix:///x.sock")) == ("unix:///x.sock", "the settings")
    assert found(Site(engine="default")) == ("unix:///var/run/docker.sock", "the settings")


def test_a_lane_is_told_which_context_was_current_when_the_run_began(context, current):
    context("first", "tcp://first:2375")
    current("first")
    site = sandbox("container", Site()).site
    current("second")
    assert found(site)[0] == "tcp://first:2375"


def test_a_process_without_a_home_finds_the_same_context(context, current, tmp_path, monkeypatch):
    context("mine", "tcp://mine:2375")
    current("mine")
    told = configuration()
    monkeypatch.setenv("HOME", "/nonexistent")
    assert found()[0] == addresses.DEFAULT
    monkeypatch.setenv("DOCKER_CONFIG", told["DOCKER_CONFIG"])
    assert found()[0] == "tcp://mine:2375"


@pytest.mark.parametrize(
    ("endpoint", "certificates", "expected"),
    [
        pytest.param({}, (), (False, True, False), id="plain"),
        pytest.param({"SkipTLSVerify": False}, ("ca.pem",), (True, True, True), id="with-an-authority"),
        pytest.param({}, ("ca.pem", "cert.pem", "key.pem"), (True, True, True), id="with-certificates"),
        pytest.param({"SkipTLSVerify": True}, (), (True, False, False), id="unverified"),
    ],
)
def test_a_contexts_certificates_are_used(context, endpoint, certificates, expected):
    held = context("remote", "tcp://remote:2376", *certificates, **endpoint)
    address = addresses.find(Site(engine="remote"))
    assert (address.tls, address.verified, bool(address.certificates)) == expected
    assert address.certificates in ("", str(held))


def test_the_environments_certificates_are_for_addresses_that_can_be_listened_to(tmp_path, monkeypatch):
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    assert addresses.find(Site(engine="tcp://remote:2376")).certificates == str(tmp_path)
    assert not addresses.find(Site(engine="unix:///x.sock")).tls
    (tmp_path / "ca.pem").unlink()
    with pytest.raises(SandboxUnavailable, match=r"there is no ca\.pem in .*DOCKER_CERT_PATH"):
        addresses.find(Site(engine="tcp://remote:2376"))


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        pytest.param("lost", "there is no docker context 'lost', which the settings names", id="no-such-context"),
        pytest.param("broken", "the docker context 'broken' cannot be read", id="unreadable"),
        pytest.param("empty", "the docker context 'empty' names no engine", id="without-an-engine"),
        pytest.param("npipe:////./pipe/docker", "begins with none of unix, tcp, http, https", id="not-for-here"),
        pytest.param("ssh://host", "Forward the engine's socket instead, with `ssh -N -L", id="ssh"),
        pytest.param("tunnel", "begins with none of .* Forward", id="a-context-with-ssh"),
    ],
)
def test_what_cannot_be_used_is_named(context, tmp_path, said, complaint):
    for name, host in (("broken", "x"), ("empty", ""), ("tunnel", "ssh://host")):
        context(name, host)
    key = hashlib.sha256(b"broken").hexdigest()
    (tmp_path / ".docker" / "contexts" / "meta" / key / "meta.json").write_text("{")
    with pytest.raises(SandboxUnavailable, match=complaint):
        addresses.find(Site(engine=said))
    assert sandbox("container", Site(engine=said)).unavailable_reason() is not None


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ("tcp://127.0.0.1:99999", "a port between 1 and 65535"),
        ("tcp://127.0.0.1:0", "a port between 1 and 65535"),
        ("tcp://", "Name a host"),
        ("tcp://[::1", "Name a host"),
        ("tcp://user@host:1", "Name a host"),
        ("tcp://[::::]:1", "Name a host"),
        ("tcp://[127.0.0.1]:1", "Name a host"),
        (
            "tcp://host",
            "has no port, and there is none that all engines have: it is usually 2376 with TLS and 2375 without",
        ),
        ("tcp://host:", "has no port"),
        ("tcp://host/", "has no port"),
        ("https://h", "has no port"),
        ("tcp://host:2375/x?y#z", "has '/x?y#z' after its port, where nothing may be. Take it out."),
        ("tcp://host:2375/../..", "has '/../..' after its port"),
        ("http://host:2375?", "has '?' after its port"),
        ("unix://", "names no socket. Name its path"),
        ("unix:///", "names no socket. Name its path"),
        ("unix:///x?y", "has a ? or # in it"),
        ("unix:///x#", "has a ? or # in it"),
        ("tcp:host:2375", "Did you mean tcp://host:2375 ?"),
        ("tcp:/host:2375", "Did you mean tcp://host:2375 ?"),
        ("tcp:host", "Name a socket as in unix:///var/run/docker.sock, or a host and its port, usually 2376 with TLS"),
        ("unix:/var/run/docker.sock", "Did you mean unix:///var/run/docker.sock ?"),
        ("run/docker.sock", "Did you mean unix:///run/docker.sock ?"),
        ("/var/run/docker.sock", "Did you mean unix:///var/run/docker.sock ?"),
        ("127.0.0.1:2375", "Did you mean tcp://127.0.0.1:2375 ?"),
        ("unix://var/run/docker.sock", "Did you mean unix:///var/run/docker.sock ?"),
        ("unix:///" + "x" * 107, "too long for a socket"),
        ("ssh://host", "Forward the engine's socket instead"),
        ("tcp://host\n:1", "control characters"),
        ("a\udcff", "control characters"),
        ("näme", "neither an address"),
    ],
)
def test_what_can_be_no_engine_is_told_without_asking_any(said, complaint):
    assert complaint in addresses.problem(said)
    with pytest.raises(SandboxUnavailable, match="the settings names no engine: "):
        addresses.find(Site(engine=said))


@pytest.mark.parametrize(
    "said",
    [
        *("", "default", "my-context.2", addresses.DEFAULT),
        *("tcp://host:2375", "tcp://Host:2375/", "https://host:2376", "tcp://[::1]:2375"),
    ],
)
def test_what_may_be_one_is_let_through(said):
    assert addresses.problem(said) is None


def drawn(count=5_000):
    """Texts of which some are addresses, and more are nearly such."""
    draw = random.Random(1)
    for _ in range(count):
        said = "".join(draw.choice("tcp:/unix@[]%.#?;1a9\0\u00e4\udc80 ") for _ in range(draw.randrange(20)))
        host, port = draw.choice(("a", "1.9", "[::1]", said[:3])), draw.choice((":1", ":99999", "", said[3:6]))
        yield from (said, f"tcp://{said}", f"unix://{said}", f"unix:///{said[:3]}", f"tcp:{host}{port}")
        yield f"{draw.choice(('tcp', 'http', 'https'))}://{host}{port}{draw.choice(('', '/', said[6:9]))}"


def test_what_passes_is_what_the_client_connects_to():
    passed = {text for text in drawn() if addresses.problem(text) is None and "://" in text}
    for text in passed:
        assert parse_host(text).partition("://")[2] == text.partition("://")[2].rstrip("/")
    assert {text.partition("://")[0] for text in passed} == {"unix", "tcp", "http", "https"}
    assert len(passed) > 500


def test_an_address_that_is_suggested_is_one():
    complaints = [addresses.problem(text) or "" for text in drawn()]
    suggested = {found[1] for complaint in complaints if (found := re.search(r"Did you mean (.+) \?$", complaint))}
    assert len(suggested) > 100
    assert [address for address in suggested if addresses.problem(address)] == []


def test_tls_that_is_asked_for_is_never_dropped(context, tmp_path, monkeypatch):
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).write_text("")
    context("plain", "http://remote:2375", "ca.pem", "cert.pem", "key.pem")
    with pytest.raises(SandboxUnavailable, match=r"'plain' asks for TLS, and 'http://remote:2375' never has it\. Name"):
        addresses.find(Site(engine="plain"))
    assert not addresses.find(Site(engine="http://remote:2375")).tls, "which nobody has asked for"
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    for url in ("http://remote:2375", "tcp://remote:2376"):
        with pytest.raises(SandboxUnavailable, match="anybody could pass for the engine. Set DOCKER_TLS_VERIFY=1"):
            addresses.find(Site(engine=url))
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    with pytest.raises(SandboxUnavailable, match="asks for TLS, and 'http://remote:2375' never has it"):
        addresses.find(Site(engine="http://remote:2375"))


@pytest.mark.parametrize(
    ("host", "endpoint", "certificates", "complaint"),
    [
        pytest.param("tcp://far:2375", {}, (), "'tcp://far:2375', has no certificates. Mend", id="plain"),
        pytest.param("http://far:2375", {}, (), "'http://far:2375', has no certificates. Mend", id="never-encrypted"),
        pytest.param(
            "tcp://far:2376", {"SkipTLSVerify": True}, ("ca.pem",), "does not have the engine prove", id="unverified"
        ),
        pytest.param("tcp://far:2376", {}, ("ca.pem",), None, id="with-an-authority"),
        pytest.param("https://far:2376", {}, (), None, id="always-encrypted"),
        pytest.param("unix:///x.sock", {}, (), None, id="a-socket"),
    ],
)
def test_tls_that_the_environment_asks_for_is_asked_of_contexts_too(
    context, monkeypatch, host, endpoint, certificates, complaint
):
    context("far", host, *certificates, **endpoint)
    assert addresses.find(Site(engine="far")).url == host, "which is docker's way as well"
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    if complaint is None:
        assert addresses.find(Site(engine="far")).url == host
    else:
        with pytest.raises(SandboxUnavailable, match=f"DOCKER_TLS_VERIFY asks for TLS, and .*{complaint}"):
            addresses.find(Site(engine="far"))


def test_what_listens_and_never_answers_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(engines, "_FIRST_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        reason = sandbox("container", Site(engine=address)).unavailable_reason()
    assert reason == (
        f"what listens at {address} has not answered within 0.5 s. Restart the engine, or name another with DOCKER_HOST."
    )


def test_settings_of_docker_that_cannot_be_read_are_not_taken_for_the_default(tmp_path):
    (tmp_path / ".docker" / "config.json").write_text("{")
    with pytest.raises(SandboxUnavailable, match=r"docker's settings cannot be read from .*config\.json.*DOCKER_HOST"):
        addresses.find(Site())


def test_contexts_that_lie_where_one_happens_to_be_are_not_read(context, tmp_path):
    context("planted", "tcp://evil:2375", place=tmp_path)
    with pytest.raises(SandboxUnavailable, match="there is no docker context 'planted'"):
        addresses.find(Site(engine="planted"))


def test_podman_is_named_and_never_used_unasked(tmp_path, monkeypatch):
    socket = tmp_path / "podman" / "podman.sock"
    socket.parent.mkdir()
    socket.touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert found() == (addresses.DEFAULT, "the default")
    assert f" To use Podman: DOCKER_HOST=unix://{socket}" in prereqs._hint(Engine(Site()))
    assert prereqs._hint(Engine(Site(engine=f"unix://{tmp_path}/other.sock"))) == ""


FIT = {"OSType": "linux", "SecurityOptions": ["name=seccomp"], "MemoryLimit": True, "PidsLimit": True}


@pytest.mark.parametrize(
    ("info", "podman", "complaint"),
    [
        pytest.param({"ServerVersion": "20.10.24+dfsg1"}, False, None, id="docker"),
        pytest.param({"ServerVersion": "20.10.5"}, False, "is engine 20.10.5; use 20.10.24 or newer", id="old-docker"),
        pytest.param({"ServerVersion": "4.3.1"}, True, None, id="podman"),
        pytest.param({"ServerVersion": "4.3.1"}, False, "use 20.10.24", id="podmans-floor-is-podmans-alone"),
        pytest.param({"ServerVersion": "4.2.0"}, True, "is podman 4.2.0; use 4.3.1 or newer", id="old-podman"),
        pytest.param({"ServerVersion": "27.0.0", "OSType": "windows"}, False, "runs windows containers", id="windows"),
        pytest.param({"ServerVersion": "27.0.0", "MemoryLimit": False}, False, "cannot limit the memory", id="memory"),
        pytest.param(
            {"ServerVersion": "27.0.0", "PidsLimit": False}, False, "cannot limit the processes", id="processes"
        ),
        pytest.param({"ServerVersion": "27.0.0", "SecurityOptions": []}, False, "has no seccomp", id="seccomp"),
    ],
)
def test_an_engine_that_could_not_hold_the_wall_is_refused(info, podman, complaint):
    engine = Engine(Site(engine="unix:///x.sock"))
    engine.__dict__.update(info={**FIT, **info}, is_podman=podman)  # what it would have been asked for
    reason = prereqs.unavailable_reason(engine)
    assert reason is None if complaint is None else complaint in reason
