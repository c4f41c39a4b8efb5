"""Engines that are spoken to over a network: plainly, with certificates, and with the wrong ones."""

import gc
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest
from boxed import ask, boxed, value

from evalcell_sandboxes import SandboxUnavailable, Site, sandbox, silent
from evalcell_sandboxes.container import bases
from evalcell_sandboxes.container.engine import Engine

ECHO = "def evaluate(output): return output\n"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_rows_run_on_an_engine_that_is_reached_by_tcp(starting, write, rows, evalcell, tmp_path):
    port = free_port()
    with starting("--port", str(port)):
        there = {"DOCKER_HOST": f"tcp://127.0.0.1:{port}", "EVALCELL_BASE_IMAGE": bases.packed_name()}
        there |= {
            "HTTP_PROXY": "http://127.0.0.1:9",
            "http_proxy": "http://127.0.0.1:9",
            "NO_PROXY": "",
            "no_proxy": "",
        }
        done = evalcell(
            *("run", write("e.py", ECHO), "--data", rows([{"output": n} for n in range(20)])),
            *("--sandbox", "container", "--out", tmp_path / "out.jsonl"),
            env=there,
        )
    assert done.code == 0, done.err
    scores = [json.loads(line)["score"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(scores) == list(range(20))


def test_this_machines_python_is_not_packed_for_an_engine_that_may_be_elsewhere(starting):
    port = free_port()
    with starting("--port", str(port)) as own:
        own.client.images.remove(bases.packed_name())
        wall = sandbox("container", Site(engine=f"tcp://127.0.0.1:{port}"))
        with pytest.raises(SandboxUnavailable, match="cannot be pulled.*Load one into the engine, and name it in"):
            wall.prepare(None, silent)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Path:
    """An authority, a server's certificate and a client's; and the same of somebody else."""
    place = tmp_path_factory.mktemp("certificates")
    for who in ("ours", "others"):
        _certify(place / who)
    return place


def _certify(place: Path) -> None:
    place.mkdir()

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=place, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca-key.pem", "-out", "ca.pem", "-days", "1", "-subj", "/CN=authority")
    for name, file, use in (("server", "server", "serverAuth"), ("client", "cert", "clientAuth")):
        secret = "key.pem" if name == "client" else "server-key.pem"
        (place / "extensions").write_text(f"subjectAltName=IP:127.0.0.1\nextendedKeyUsage={use}\n")
        openssl("req", *key, "-keyout", secret, "-out", "request.pem", "-subj", f"/CN={name}")
        openssl(
            *("x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca-key.pem", "-CAcreateserial"),
            *("-out", f"{file}.pem", "-days", "1", "-extfile", "extensions"),
        )


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the client drops refused sockets
def test_certificates_decide_who_speaks_with_an_engine(starting, certificates, monkeypatch, tmp_path):
    port = free_port()
    site = Site(engine=f"tcp://127.0.0.1:{port}", base=bases.packed_name())
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    with starting("--port", str(port), "--certificates", str(certificates / "ours")):
        monkeypatch.setenv("DOCKER_CERT_PATH", str(certificates / "others"))
        assert "do not trust each other" in sandbox("container", site).unavailable_reason()
        monkeypatch.setenv("DOCKER_CERT_PATH", str(certificates / "ours"))
        wall = sandbox("container", site)
        assert wall.unavailable_reason() is None
        wall.prepare(None, silent)
        with boxed(wall, ECHO) as session:
            assert [value(outcome) for outcome in ask(session, 1, 2)] == [1, 2]
        monkeypatch.delenv("DOCKER_CERT_PATH")
        monkeypatch.delenv("DOCKER_TLS_VERIFY")
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        _write_context(tmp_path, site.engine, certificates / "ours")
        assert Engine(Site(engine="remote")).info["OSType"] == "linux"
    gc.collect()  # or that is blamed on whatever test is running when it happens


def _write_context(config: Path, host: str, certificates: Path) -> None:
    from hashlib import sha256

    key = sha256(b"remote").hexdigest()
    meta, tls = config / "contexts" / "meta" / key, config / "contexts" / "tls" / key / "docker"
    for place in (meta, tls):
        place.mkdir(parents=True)
    told = {"Name": "remote", "Metadata": {}, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False}}}
    (meta / "meta.json").write_text(json.dumps(told))
    for name in ("ca.pem", "cert.pem", "key.pem"):
        os.link(certificates / name, tls / name)
