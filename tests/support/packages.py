"""A package index of the tests' own: real HTTP on loopback, wheels and archives made on the spot."""

import hashlib
import http.server
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

Members = Sequence[tuple[zipfile.ZipInfo | str, bytes]]


class Index:
    """Serves the files that it holds, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.advertised: dict[str, str] = {}
        self.asked: list[str] = []
        self.authorization: list[str | None] = []
        self.ended = threading.Event()
        self.address = ""

    def wheel(
        self,
        name: str,
        version: str = "1.0",
        files: Mapping[str, str] | None = None,
        *,
        requires: Sequence[str] = (),
        tag: str = "py3-none-any",
        members: Members = (),
    ) -> str:
        """Adds a wheel and gives the hash of it. `members` go in as they are."""
        module = name.replace("-", "_")
        info = f"{module}-{version}.dist-info"
        needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
        content = {
            **({f"{module}/__init__.py": "NAME = __name__\n"} if files is None else files),
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
        }
        named = [*content, *(str(getattr(member, "filename", member)) for member, _ in members)]
        content[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*named, f"{info}/RECORD"])
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for path, text in content.items():
                archive.writestr(path, text)
            for member, data in members:
                archive.writestr(member, data, zipfile.ZIP_DEFLATED)
        return self.put(f"{module}-{version}-{tag}.whl", packed.getvalue())

    def sdist(self, name: str, version: str, setup: str) -> str:
        """Adds a source archive with that setup.py."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for path, text in {
                "setup.py": setup,
                "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            }.items():
                member = tarfile.TarInfo(f"{name}-{version}/{path}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
        return self.put(f"{name}-{version}.tar.gz", packed.getvalue())

    def put(self, file: str, data: bytes) -> str:
        self.files[file] = data
        self.advertised[file] = hashlib.sha256(data).hexdigest()
        return self.advertised[file]

    def fragment(self, file: str) -> str:
        return f"#sha256={self.advertised[file]}" if file in self.advertised else ""

    def hang(self) -> tuple[int, str, bytes]:
        """Answers only when the test is over."""
        self.ended.wait(30)
        return 503, "text/html", b""

    def answer(self, path: str) -> tuple[int, str, bytes]:
        kind, _, rest = path.strip("/").partition("/")
        if kind == "files" and rest in self.files:
            return 200, "application/octet-stream", self.files[rest]
        links = [
            f'<a href="/files/{file}{self.fragment(file)}">{file}</a>'
            for file in self.files
            if kind == "simple" and file.split("-")[0].replace("_", "-") == rest
        ]
        page = f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
        return (200, "text/html", page) if links else (404, "text/html", b"")


@contextmanager
def served() -> Iterator[Index]:
    """An index that answers."""
    index = Index()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            index.asked.append(self.path)
            index.authorization.append(self.headers.get("Authorization"))
            status, kind, body = index.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - the server finds it by this name

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign] # a client that was killed mid-answer
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        index.address = f"http://127.0.0.1:{server.server_port}/simple"
        yield index
        index.ended.set()
        server.shutdown()
        thread.join()
