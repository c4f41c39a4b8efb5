"""What there is to get hold of, and whether somebody did: files, an environment variable, sockets, a process."""

import os
import secrets
import selectors
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

VARIABLE = "EVALCELL_CANARY"
REPORT = '{"kind":"returned","value":"forged","row":2,"result":"forged"}'
"""A result in the words of the WebAssembly guest and of the unsandboxed runner at once, for a row that is not its."""


def has_ipv6() -> bool:
    """Whether there is a loopback to listen on: many containers have none."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


class Listener:
    """Counts what arrives at a loopback port (TCP and UDP, IPv4 and IPv6), a unix socket and an abstract one."""

    def __init__(self, directory: Path, secret: str) -> None:
        self.hits = 0
        self.unix = str(directory / "listener.sock")
        self.abstract = f"evalcell-{secret}"
        self._secret = secret.encode()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self.port = self._listen(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)).getsockname()[1]
        self._listen(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", self.port))
        if has_ipv6():
            self._listen(socket.AF_INET6, socket.SOCK_STREAM, ("::1", self.port))
        self._listen(socket.AF_UNIX, socket.SOCK_STREAM, self.unix)
        if sys.platform == "linux":
            self._listen(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self.abstract}")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _listen(self, family: int, kind: int, address: Any) -> socket.socket:
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        if kind == socket.SOCK_STREAM:
            listening.listen()
        self._selector.register(listening, selectors.EVENT_READ)
        return listening

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    return
                self.hits += 1
                self._answer(key.fileobj)

    def _answer(self, listening: Any) -> None:
        """Speaks enough HTTP for `urllib` to believe it, and enough nothing for everybody else."""
        if listening.type == socket.SOCK_DGRAM:
            listening.recv(100)
            return
        connection, _ = listening.accept()
        with connection:
            connection.settimeout(0.2)
            try:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + self._secret)
            except OSError:
                pass

    def close(self) -> None:
        self._wake.send(b"x")
        self._thread.join(10)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._wake.close()
        self._selector.close()


class Canaries:
    """A directory with a secret in every form, a listener and a process to kill. `loot` says where they are."""

    def __init__(self, directory: Path) -> None:
        self.secret = f"canary-{secrets.token_hex(8)}"
        self.directory = directory
        self.target = directory / "planted"
        self.treasure = directory / "treasure.txt"
        self.treasure.write_text(self.secret)
        self.treasure.chmod(0o600)
        (directory / "module.py").write_text(f"SECRET = {self.secret!r}\n")
        (directory / "module.ts").write_text(f"export const SECRET = {self.secret!r};\n")
        (directory / "native.so").write_bytes(b"\x7fELF" + self.secret.encode())
        self._make_database(directory / "treasure.db")
        self.listener = Listener(directory, self.secret)
        # In a session of its own: an attack on its process group must not reach ours.
        self.victim = subprocess.Popen(
            ["sleep", "600"], env={**os.environ, VARIABLE: self.secret}, start_new_session=True
        )
        self._before = self._state()

    def _make_database(self, path: Path) -> None:
        database = sqlite3.connect(path)
        database.execute("create table t (secret)")
        database.execute("insert into t values (?)", (self.secret,))
        database.commit()
        database.close()

    @property
    def loot(self) -> dict[str, Any]:
        return {
            "directory": str(self.directory),
            "file": str(self.treasure),
            "database": str(self.directory / "treasure.db"),
            "native": str(self.directory / "native.so"),
            "target": str(self.target),
            "port": self.listener.port,
            "unix": self.listener.unix,
            "abstract": self.listener.abstract,
            "victim": self.victim.pid,
            "python": sys.executable,
            "variable": VARIABLE,
            "host": os.uname().nodename,
            "release": os.uname().release,
            "now": time.time(),
            "report": REPORT,
        }

    def _state(self) -> dict[str, tuple[int, int, bytes]]:
        """Every file with its mode, its number of links and its content."""
        found = {}
        for path in sorted(self.directory.rglob("*")):
            status = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[path.name] = (status.st_mode, status.st_nlink, content)
        return found

    @property
    def files_touched(self) -> bool:
        return self._state() != self._before

    @property
    def victim_dead(self) -> bool:
        return self.victim.poll() is not None

    def close(self) -> None:
        self.listener.close()
        self.victim.kill()
        self.victim.wait()


@contextmanager
def canaries_in(directory: Path) -> Iterator[Canaries]:
    """Sets the canaries out in an empty directory, the secret in the environment too, and takes them in again."""
    directory.mkdir()
    canaries = Canaries(directory)
    os.environ[VARIABLE] = canaries.secret
    try:
        yield canaries
    finally:
        del os.environ[VARIABLE]
        canaries.close()
