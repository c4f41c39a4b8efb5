"""Engines whose answers make no sense, and servers that are no engines: both are named, and neither is our mistake."""

import json
import re
import socketserver
import threading
from http.server import BaseHTTPRequestHandler

import pytest

from evalcell_sandboxes import SandboxError, SandboxFault, SandboxUnavailable, Site, sandbox, silent
from evalcell_sandboxes.container import layers, presence
from evalcell_sandboxes.container.box import Box
from evalcell_sandboxes.container.engine import Engine

INFO = {
    "ServerVersion": "27.0.0",
    "OSType": "linux",
    "Architecture": "x86_64",
    "SecurityOptions": ["name=seccomp"],
    "MemoryLimit": True,
    "PidsLimit": True,
}
SANE = {
    "GET /version": (200, {"ApiVersion": "1.44", "Components": [{"Name": "Podman Engine"}]}),
    "GET /info": (200, INFO),
    "GET /containers/json": (200, []),
    "GET /volumes": (200, {"Volumes": []}),
    "POST /volumes/create": (201, {}),
    "GET /images/.+/json": (200, {"Id": "sha256:1", "Config": {}}),
    "GET /images/json": (200, []),
    "GET /networks": (200, []),
    "POST /containers/create": (201, {"Id": "1"}),
    "POST /containers/.+/start": (204, None),
    "POST /containers/.+/wait": (200, {"StatusCode": 0}),
    "GET /containers/.+/json": (200, {"Config": {"Tty": False}}),
    "GET /containers/.+/logs": (200, b""),
    "GET /events": (200, {"Action": "die", "Actor": {"Attributes": {"exitCode": "1"}}}),
    "POST /commit": (201, {}),
    "DELETE /.+": (204, None),
}
PAGE = b"<html><body>Welcome!</body></html>"


class Fake:
    """Something that listens on a socket and answers as it is told, and else as an engine does."""

    def __init__(self, address):
        self.address = address
        self.answers = dict(SANE)

    @property
    def wall(self):
        return sandbox("container", Site(engine=self.address))

    @property
    def engine(self):
        return Engine(Site(engine=self.address))

    def answer(self, asked):
        asked = re.sub(r"/v1\.\d+/", "/", asked.partition("?")[0])
        status, body = next(
            (answer for pattern, answer in self.answers.items() if re.fullmatch(pattern, asked)),
            (404, {"message": f"no such thing: {asked}"}),
        )
        return status, body if isinstance(body, bytes) else b"" if status == 204 else json.dumps(body).encode()


@pytest.fixture
def fake(tmp_path, monkeypatch):
    monkeypatch.setenv("EVALCELL_CACHE_DIR", str(tmp_path / "cache"))
    fake = Fake(f"unix://{tmp_path}/engine.sock")

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = fake.answer(f"{self.command} {self.path}")
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815 - the server finds it by these names

        def address_string(self):
            return "somebody"

        def log_message(self, *arguments):
            pass

    with socketserver.ThreadingUnixStreamServer(str(tmp_path / "engine.sock"), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield fake
        server.shutdown()
        thread.join()


def test_an_engine_that_makes_sense_is_taken(fake):
    assert fake.wall.unavailable_reason() is None
    with pytest.raises(SandboxUnavailable, match="the base image 'python:3.12-slim' has no usable python3"):
        fake.wall.prepare(None, silent)  # which is as far as one comes without containers


def events_of(engine):
    box = Box.__new__(Box)  # a container that has ended
    box._engine, box._began, box._name = engine, 0, "x"
    return box._last_events()


READS = {
    "GET /info": lambda engine: engine.info,
    "GET /containers/json": lambda engine: engine.sweep(),
    "GET /volumes": lambda engine: engine.sweep(),
    "GET /images/.+/json": lambda engine: engine.client.images.get("x"),
    "GET /images/json": presence.found,
    "GET /networks": lambda engine: engine.api.networks(),
    "POST /containers/create": lambda engine: engine.api.create_container("x"),
    "POST /containers/.+/wait": lambda engine: engine.api.wait("x"),
    "GET /containers/.+/json": lambda engine: engine.api.logs("x"),
    "GET /events": events_of,
    "POST /commit": lambda engine: layers.commit(engine, "x", "y", {}),
}
"""How each answer is asked for."""


@pytest.mark.parametrize("asked", READS)
def test_answers_of_an_engine_that_makes_sense_are_read(fake, asked):
    READS[asked](fake.engine)


@pytest.mark.parametrize(
    ("asked", "answer", "said"),
    [
        pytest.param("GET /info", None, "GET /info it said 200 'null'", id="info-null"),
        pytest.param("GET /info", [], "GET /info it said 200 '[]'", id="info-list"),
        pytest.param("GET /info", {"SecurityOptions": 5}, "Expected `array | null`, got `int`", id="info-options"),
        pytest.param("GET /info", {"Runtimes": ["runc"]}, "Expected `object | null`", id="info-runtimes"),
        pytest.param("GET /info", {"ServerVersion": "9" * 5000}, "length <= 200", id="info-endless-version"),
        pytest.param("GET /info", PAGE, "it said 200 '<html><body>Welcome", id="info-page"),
        pytest.param("GET /containers/json", None, "GET /containers/json it said 200 'null'", id="containers-null"),
        pytest.param("GET /containers/json", [{}], "missing required field `Id`", id="containers-empty"),
        pytest.param(
            "GET /containers/json", [{"Id": "1", "State": "x", "Created": 0, "Labels": 5}], "$[0].Labels", id="labels"
        ),
        pytest.param("GET /volumes", {}, "missing required field `Volumes`", id="volumes-empty"),
        pytest.param("GET /images/.+/json", {}, "missing required field `Id`", id="image-empty"),
        pytest.param("GET /images/.+/json", {"Id": "1", "Config": None}, "got `null` - at `$.Config`", id="no-config"),
        pytest.param("GET /images/.+/json", None, "GET /images/x/json it said 200 'null'", id="image-null"),
        pytest.param("GET /images/.+/json", [], "GET /images/x/json it said 200 '[]'", id="image-list"),
        pytest.param("GET /images/json", [{"Id": "1"}], "missing required field `Size`", id="images-without-size"),
        pytest.param("GET /networks", [5], "at `$[0]`", id="networks"),
        pytest.param("POST /containers/create", PAGE, "POST /containers/create it said 200", id="create-page"),
        pytest.param("POST /containers/.+/wait", {}, "missing required field `StatusCode`", id="wait-empty"),
        pytest.param("GET /containers/.+/json", {"Config": {}}, "missing required field `Tty`", id="container"),
        pytest.param("GET /events", {"Action": "die"}, "to GET /events it said {'Action': 'die'} (Object", id="event"),
        pytest.param("POST /commit", b"[" * 100_000, "POST /commit it said 200 '[[[", id="deep"),
    ],
)
def test_an_answer_that_makes_no_sense_is_the_engines_fault(fake, asked, answer, said):
    fake.answers[asked] = (200, answer)
    with pytest.raises(SandboxFault) as caught:
        READS[asked](fake.engine)
    told = str(caught.value)
    assert told.startswith(f"The container engine at {fake.address} gave an answer that makes no sense: to ")
    assert said in told
    assert told.endswith("Restart or update it, or name another with DOCKER_HOST.")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param({"message": "I am tired"}, "failed while it was asked what it is: I am tired", id="as-it-should"),
        pytest.param(b"I am tired", "failed while it was asked what it is: I am tired", id="as-text"),
        pytest.param({}, "makes no sense: to GET /info it said 500 '{}'", id="empty"),
        pytest.param(None, "makes no sense: to GET /info it said 500 'null'", id="null"),
        pytest.param({"message": 5}, "makes no sense: to GET /info it said 500", id="number"),
        pytest.param(PAGE, "makes no sense: to GET /info it said 500 '<html>", id="page"),
    ],
)
def test_a_complaint_is_told_however_it_is_made(fake, body, said):
    fake.answers["GET /info"] = (500, body)
    assert said in fake.wall.unavailable_reason()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        pytest.param(200, PAGE, id="page"),
        pytest.param(404, PAGE, id="page-not-found"),
        pytest.param(404, {"message": "Not Found"}, id="another-api"),
        pytest.param(403, {"error": "forbidden"}, id="another-api-that-refuses"),
        pytest.param(301, b"", id="elsewhere"),
        pytest.param(200, b"", id="nothing"),
        pytest.param(200, b"\xff\xfe\x00", id="bytes"),
        pytest.param(200, None, id="null"),
        pytest.param(200, {"ApiVersion": "latest"}, id="no-number"),
        pytest.param(200, {"ApiVersion": "1." + "9" * 5000}, id="endless-number"),
        pytest.param(200, {"ApiVersion": "1.44", "Components": [5]}, id="components"),
    ],
)
def test_what_is_no_engine_is_told_from_one(fake, status, body):
    fake.answers["GET /version"] = (status, body)
    reason = fake.wall.unavailable_reason()
    assert reason.startswith(
        f"something answers at {fake.address} that is no container engine: asked for its version, "
    )
    assert f"it said {status} " in reason
    assert reason.endswith("Name an engine with DOCKER_HOST.")


JUNK = [None, [], {}, [{}], [None], 5, "x", PAGE, b"", b"\xff", b"[" * 100_000, b"9" * 5000, {"Id": 5, "Config": {}}]


@pytest.mark.parametrize("asked", SANE)
def test_no_answer_makes_the_wall_raise_anything_but_its_own_errors(fake, asked):
    for junk in JUNK:
        for status in (200, 404, 500):
            fake.answers[asked] = (status, junk)
            assert fake.wall.unavailable_reason() is None or asked in {"GET /version", "GET /info"}
            with pytest.raises(SandboxError):
                fake.wall.prepare(None, silent)


def test_containers_that_an_engine_should_not_have_named_are_left_alone(fake):
    listed = {"Id": "1", "State": "exited", "Created": 0}
    fake.answers["GET /containers/json"] = (200, [{**listed, "Labels": None}, {**listed, "Labels": {"other": "x"}}])
    assert fake.engine.sweep() == 0
