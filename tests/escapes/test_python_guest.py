"""What code behind a wall tries first: files, the environment, the network, other processes, other rows.

Each attack is a body of `evaluate` that returns what it got hold of. A control runs the same body in a plain Python
process and must get it, so that a quiet sandbox proves something.
"""

import json
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading

import pytest

from evalcell_sandboxes import Confinement, Isolation, Limits, Program, Raised, Returned, names, sandbox

SECRET = "canary-4f1c"

ATTACKS = {
    "read-file": "return open(output['file']).read()",
    "read-file-low-level": "import os; fd = os.open(output['file'], os.O_RDONLY); return os.read(fd, 99).decode()",
    "read-file-pathlib": "import pathlib; return pathlib.Path(output['file']).read_text()",
    "read-file-import": "import importlib.machinery as m; return m.SourceFileLoader('x', output['file']).get_data(output['file']).decode()",
    "read-file-subclasses": "return [c for c in ().__class__.__base__.__subclasses__() if c.__name__ == 'FileLoader'][0]('x', output['file']).get_data(output['file']).decode()",
    "read-file-dot-dot": "return open('/tmp/..//' + output['file']).read()",
    "read-file-sqlite": "import sqlite3; c = sqlite3.connect(output['db']); return str(c.execute('select * from t').fetchall())",
    "write-file": "open(output['target'], 'w').write('x'); return output['got']",
    "list-directory": "import os; return output['got'] if os.listdir(output['directory']) else ''",
    "environment": "import os; return os.environ.get('EVALCELL_CANARY', '')",
    "environment-proc": "return open('/proc/self/environ').read()",
    "tcp": "import socket; s = socket.create_connection(('127.0.0.1', output['port']), 2); s.sendall(b'hit'); return output['got']",
    "tcp-http": "import urllib.request as u; return u.urlopen(f\"http://127.0.0.1:{output['port']}/\", timeout=2).read().decode() or output['got']",
    "udp": "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'hit', ('127.0.0.1', output['port'])); return output['got']",
    "name-lookup": "import socket; return output['got'] if socket.getaddrinfo('localhost', 80) else ''",
    "subprocess": "import subprocess, sys; return subprocess.run([output['python'], '-c', 'import sys; print(sys.argv[1])', output['got']], capture_output=True, text=True).stdout",
    "exec": "import os; return output['got'] if os.spawnv(os.P_WAIT, output['python'], [output['python'], '-c', '']) == 0 else ''",
    "ctypes": "import ctypes; return output['got'] if ctypes.CDLL(None).getpid() > 0 else ''",
    "threads": "import threading; got = []; t = threading.Thread(target=lambda: got.append(output['got'])); t.start(); t.join(); return got[0]",
    "open-descriptors": "import os\nfor fd in range(3, 64):\n    try: os.fstat(fd)\n    except OSError: continue\n    return output['got']\nreturn ''",
}
NETWORK = {"tcp", "tcp-http", "udp"}


class Listener:
    """Counts every connection and datagram on one loopback port, and answers HTTP."""

    def __init__(self) -> None:
        self.hits = 0
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", self.port))
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._accept, self._receive)]
        for thread in self._threads:
            thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._tcp.accept()
            except OSError:
                return
            self.hits += 1
            with connection:
                connection.settimeout(1)
                connection.recv(1000)
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + SECRET.encode())

    def _receive(self) -> None:
        while True:
            try:
                data, _ = self._udp.recvfrom(100)
            except OSError:
                return
            if data == b"stop":
                return
            self.hits += 1

    def close(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as poke:
            poke.sendto(b"stop", ("127.0.0.1", self.port))
        self._tcp.shutdown(socket.SHUT_RDWR)
        self._tcp.close()
        for thread in self._threads:
            thread.join(5)
        self._udp.close()


@pytest.fixture
def loot(tmp_path, monkeypatch):
    """What there is to get hold of."""
    monkeypatch.setenv("EVALCELL_CANARY", SECRET)
    (tmp_path / "secret.txt").write_text(SECRET)
    _make_database(tmp_path)
    listener = Listener()
    yield {
        "file": str(tmp_path / "secret.txt"),
        "db": str(tmp_path / "secret.db"),
        "target": str(tmp_path / "written.txt"),
        "directory": str(tmp_path),
        "port": listener.port,
        "python": sys.executable,
        "got": SECRET,
        "listener": listener,
    }
    listener.close()


def _make_database(directory):
    with sqlite3.connect(directory / "secret.db") as database:
        database.execute("create table t (secret)")
        database.execute("insert into t values (?)", (SECRET,))
    database.close()


def _source(attack: str) -> str:
    return "def evaluate(output):\n" + textwrap.indent(attack, "    ") + "\n"


def _arguments(loot) -> dict:
    return {key: value for key, value in loot.items() if isinstance(value, str | int)}


@pytest.fixture(params=names())
def wall(request):
    made = sandbox(request.param)
    if reason := made.unavailable_reason():
        pytest.skip(f"{request.param}: {reason}")
    return made


@pytest.mark.parametrize("attack", ATTACKS, ids=ATTACKS)
def test_the_wall_holds(wall, loot, attack, tmp_path):
    program = Program(source=_source(ATTACKS[attack]), filename="attack.py")
    rows = [json.dumps({"output": _arguments(loot)}).encode()]
    with wall.open(program, Confinement(limits=Limits(wall_seconds=5.0))) as session:
        assert isinstance(session.loaded, Returned)
        (outcome,) = session.run(rows)
    assert SECRET not in repr(outcome)
    if attack not in ("environment", "open-descriptors"):
        assert isinstance(outcome, Raised), outcome
    assert loot["listener"].hits == 0
    assert not (tmp_path / "written.txt").exists()
    assert "calling.py" not in repr(outcome)
    assert "site-packages" not in repr(outcome)


@pytest.mark.parametrize("attack", [name for name in ATTACKS if name != "environment-proc"])
def test_without_the_wall_the_same_attack_succeeds(loot, attack):
    script = _source(ATTACKS[attack]) + "import json, sys\nprint(evaluate(json.loads(sys.argv[1])))\n"
    pass_fds = [loot["listener"]._tcp.fileno()] if attack == "open-descriptors" else []
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(_arguments(loot))],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        pass_fds=pass_fds,
    )
    assert SECRET in done.stdout, done.stderr
    if attack in NETWORK:
        assert loot["listener"].hits > 0


ROW_LEAKS = {
    "globals": "seen.append(output)\nreturn seen",
    "builtins": "import builtins\nkept = getattr(builtins, 'kept', [])\nkept.append(output)\nbuiltins.kept = kept\nreturn kept",
    "module": "import json\nkept = json.__dict__.setdefault('kept', [])\nkept.append(output)\nreturn kept",
    "patched-json": "import json\nold = json.dumps\njson.dumps = lambda *a, **k: old(['patched'])\nreturn json.dumps(output)",
    "default-argument": "def f(x, kept=seen):\n    kept.append(x)\n    return kept\nreturn f(output)",
    "garbage": "import gc\nseen.append({'canary': output})\nreturn [o['canary'] for o in gc.get_objects() if type(o) is dict and 'canary' in o]",
    "regex-cache": "import re\nre.compile(f'x{output}')\nreturn sorted(k[1] for k in re._cache if str(k[1]).startswith('x'))",
    "environ": "import os\nos.environ[f'row_{output}'] = 'x'\nreturn sorted(k for k in os.environ if k.startswith('row_'))",
    "sys-modules": "import sys, types\nsys.modules[f'leak_{output}'] = types.ModuleType('x')\nreturn sorted(k for k in sys.modules if k.startswith('leak_'))",
}


def _leak_source(body: str) -> str:
    return "seen = []\ndef evaluate(output):\n" + textwrap.indent(body, "    ") + "\n"


def _run(wall, body, isolation):
    program = Program(source=_leak_source(body), filename="leak.py")
    with wall.open(program, Confinement(isolation=isolation)) as session:
        return [
            json.loads(outcome.value) for outcome in session.run([b'{"output": 1}', b'{"output": 2}', b'{"output": 1}'])
        ]


@pytest.mark.parametrize("leak", ROW_LEAKS, ids=ROW_LEAKS)
def test_no_row_leaves_anything_for_the_next(wall, leak):
    first, second, again = _run(wall, ROW_LEAKS[leak], Isolation.ROW)
    assert first == again
    assert "1" not in json.dumps(second)


@pytest.mark.parametrize("leak", [name for name in ROW_LEAKS if name != "patched-json"])
def test_with_shared_state_the_same_leak_is_there(wall, leak):
    _, second, _ = _run(wall, ROW_LEAKS[leak], Isolation.EVALUATOR)
    assert "1" in json.dumps(second)
