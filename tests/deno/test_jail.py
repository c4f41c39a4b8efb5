"""Native code in the process that is meant for Deno, and what of the machine it can reach: nothing. Each attack is also
run without the jail, where it must succeed: else it would prove nothing."""

import contextlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import jailing
import pytest
from jailing import ALONE, ENVIRONMENT, LIBRARIES, MIB, PYTHON, gone, held, jailed, native, unjailed
from promises import lacking as promised

from evalcell_sandboxes.deno import jail as jails
from evalcell_sandboxes.deno import memory
from evalcell_sandboxes.deno.jail import Jail, lacking

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the walls are Linux's")


@pytest.fixture(scope="session")
def deno() -> str:
    try:
        from deno import find_deno_bin
    except ImportError:
        promised("the package 'deno' is not installed")
    return os.path.realpath(find_deno_bin())


@pytest.fixture(autouse=True)
def _all_walls():
    if missing := lacking():
        promised(f"this machine has no {'; no '.join(missing)}")


@pytest.fixture
def canary(tmp_path):
    """A file with a secret, which must be the same afterwards."""
    path = tmp_path / "canary"
    path.write_text("secret")
    path.chmod(0o640)
    before = path.stat()
    yield path
    assert path.read_text() == "secret"
    assert path.stat().st_mode == before.st_mode
    assert path.stat().st_mtime_ns == before.st_mtime_ns


@pytest.fixture
def victim():
    """A process of the same user, which must live."""
    with subprocess.Popen([PYTHON, "-c", "input()"], stdin=subprocess.PIPE, env={"SECRET": "hidden"}) as process:
        yield process
        assert process.poll() is None
        process.kill()


class Heard:
    """Sockets of all kinds, and whether anything came."""

    def __init__(self, place: Path) -> None:
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.stream_path, self.datagram_path = str(place / "stream"), str(place / "datagram")
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.bind(self.stream_path)
        self.datagram = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.datagram.bind(self.datagram_path)
        self.name = f"\0evalcell-{os.getpid()}"
        self.abstract = socket.socket(socket.AF_UNIX)
        self.abstract.bind(self.name)
        self.all = (self.tcp, self.udp, self.stream, self.datagram, self.abstract)
        for listener in (self.tcp, self.stream, self.abstract):
            listener.listen()
        for one in self.all:
            one.settimeout(0)

    def anything(self) -> bool:
        heard = False
        for one in self.all:
            with contextlib.suppress(BlockingIOError):
                if one in (self.udp, self.datagram):
                    one.recv(10)
                else:
                    one.accept()[0].close()
                heard = True
        return heard

    def close(self) -> None:
        for one in self.all:
            one.close()


@pytest.fixture
def heard(tmp_path_factory):
    listeners = Heard(tmp_path_factory.mktemp("s"))
    yield listeners
    listeners.close()


# -- native code ------------------------------------------------------------------------------------------------------
FILES = {
    "read": "assert open(canary).read()",
    "append": "os.close(os.open(canary, os.O_WRONLY | os.O_APPEND))",
    "read-and-write": "os.close(os.open(canary, os.O_RDWR))",
    "list": "assert os.listdir(os.path.dirname(canary))",
    "mode": "os.chmod(canary, os.stat(canary).st_mode & 0o7777)",
    "owner": "os.chown(canary, -1, -1)",
    "times": "os.utime(canary, ns=(os.stat(canary).st_atime_ns, os.stat(canary).st_mtime_ns))",
    "attribute": "os.setxattr(canary, 'user.evalcell', b'x')",
    "new": "os.close(os.open(canary + '.new', os.O_CREAT | os.O_WRONLY))",
    "unnamed": "os.close(os.open(os.path.dirname(canary), os.O_TMPFILE | os.O_RDWR))",
    "directory": "os.mkdir(canary + '.directory')",
    "link": "os.link(canary, canary + '.link')",
    "symbolic-link": "os.symlink(canary, canary + '.symlink')",
    "pipe-with-a-name": "os.mkfifo(canary + '.fifo')",
    "execute": "os.execv('/bin/sh', ['sh', '-c', 'echo REACHED'])",
    "root-of-other": "assert open(f'/proc/{os.getppid()}/root' + canary).read()",
    "own-environment": "open('/proc/self/environ').read()",
    "own-memory": "open('/proc/self/mem', 'rb')",
}


@pytest.mark.parametrize("body", FILES.values(), ids=FILES)
def test_native_code_reaches_no_file(body, canary, tmp_path):
    command = native(body, canary=str(canary))
    assert "REFUSED" in jailed(command)
    assert sorted(tmp_path.iterdir()) == [canary]
    assert "REACHED" in unjailed(command)
    for made in set(tmp_path.iterdir()) - {canary}:
        made.rmdir() if made.is_dir() else made.unlink()


PROCESSES = {
    "environment": "assert b'hidden' in open(f'/proc/{victim}/environ', 'rb').read()",
    "command": "assert open(f'/proc/{victim}/cmdline').read()",
    "status": "assert open(f'/proc/{victim}/status').read()",
    "memory": "open(f'/proc/{victim}/mem', 'rb')",
    "program": "os.readlink(f'/proc/{victim}/exe')",
    "signal": "os.kill(victim, 18)",
    "signal-of-a-thread": "call(234, 131, victim, victim, 18)",
    "signal-of-a-task": "call(200, 130, victim, 18)",
    "signal-by-descriptor": "call(424, 424, os.pidfd_open(victim), 18, None, 0)",
    "signal-to-all": "os.kill(-1, 0)",
    "signal-by-owner": "r, w = os.pipe(); import fcntl; fcntl.fcntl(r, 8, victim)",
    "trace": "c(libc.ptrace(0x4206, victim, None, None))",
    "limits": "import resource; resource.prlimit(victim, resource.RLIMIT_CORE)",
    "priority": "os.setpriority(os.PRIO_PROCESS, victim, 1)",
    "processors": "os.sched_setaffinity(victim, os.sched_getaffinity(0))",
    "descriptor": "call(438, 438, os.pidfd_open(victim), 0, 0)",
    "read-memory": """
here = ctypes.create_string_buffer(8)
maps = open(f'/proc/{victim}/maps').readline() if len(sys.argv) > 9 else None
vector = struct.pack('PN', ctypes.addressof(here), 8)
try:
    call(310, 270, victim, vector, 1, struct.pack('PN', 0x1000, 8), 1, 0)
except OSError as error:
    if error.errno != 14: raise  # there is no memory at that address: it was looked for
""",
}


@pytest.mark.parametrize("body", PROCESSES.values(), ids=PROCESSES)
def test_native_code_reaches_no_other_process(body, victim):
    command = native(body, victim=victim.pid)
    assert "REFUSED" in jailed(command)
    assert "REACHED" in unjailed(command)


NETWORK = {
    "tcp": "socket.create_connection(('127.0.0.1', tcp), 5)",
    "udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', udp))",
    "unix": "socket.socket(socket.AF_UNIX).connect(stream)",
    "abstract": "socket.socket(socket.AF_UNIX).connect(abstract)",
    "datagram": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', datagram)",
    "datagram-of-a-pair": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', datagram)",
}


@pytest.mark.parametrize("body", NETWORK.values(), ids=NETWORK)
def test_native_code_reaches_no_network(body, heard):
    command = knocking(body, heard)
    assert "REFUSED" in jailed(command)
    assert not heard.anything()
    assert "REACHED" in unjailed(command)
    assert heard.anything()


@pytest.mark.parametrize("wall", ["namespaces", "landlock"])
@pytest.mark.parametrize("body", [NETWORK["tcp"], NETWORK["abstract"]], ids=["tcp", "abstract"])
def test_one_wall_alone_keeps_the_network_away(body, wall, heard, monkeypatch):
    """Sockets with a path, and UDP with Landlock alone, are kept from it by the filter only."""
    monkeypatch.setattr(jails, "_missing", lambda: frozenset({"filter", "namespaces", "landlock"} - {wall}))
    assert "REFUSED" in jailed(knocking(body, heard))
    assert not heard.anything()


def knocking(body: str, heard: Heard) -> list[str]:
    ports = {"tcp": heard.tcp.getsockname()[1], "udp": heard.udp.getsockname()[1]}
    return native(body, stream=heard.stream_path, datagram=heard.datagram_path, abstract=heard.name, **ports)


CALLS = {
    "fork": "os.fork() or os._exit(0)",
    "spawn": "os.posix_spawn('/bin/true', ['true'], {})",
    "clone3": "call(435, 435, struct.pack('11Q', 0, 0, 0, 0, 17, *[0] * 6), 88) or os._exit(0)",
    "user-namespace": "c(libc.unshare(0x10000000))",
    "memory-file": "os.memfd_create('x')",
    "shared-memory": "import mmap; mmap.mmap(-1, 4096)",
    "personality": "call(135, 92, 0xffffffff)",
    "directory": "os.chdir('/')",
    "io_uring": "call(425, 425, 1, ctypes.create_string_buffer(120))",
    "keys": "call(250, 219, 0, -3, 0)",
    "dumpable": "c(libc.prctl(4, 1, 0, 0, 0))",
    "parent-death": "c(libc.prctl(1, 0, 0, 0, 0))",
    "more-descriptors": "c(libc.setrlimit(7, struct.pack('QQ', 4096, 4096)))",
    "large-pipes": "import fcntl; fcntl.fcntl(os.pipe()[1], 1031, 1 << 20)",
    "inotify": "c(libc.inotify_init1(0))",
    "terminal": "os.openpty()",
    "many-descriptors": "[os.dup(0) for _ in range(200)]",
}


@pytest.mark.parametrize("body", CALLS.values(), ids=CALLS)
def test_native_code_gets_no_such_call(body):
    outside = unjailed(native(body))
    assert "REFUSED" in jailed(native(body))
    if body == CALLS["io_uring"] and "REACHED" not in outside:
        pytest.skip("the operator of this machine has switched io_uring off")
    assert "REACHED" in outside


def test_filter_refuses_calls_that_it_does_not_know():
    assert "REFUSED 38" in jailed(native("call(999, 999)"))
    assert "REFUSED 38" in jailed(native("call(437, 437, -100, b'/', bytes(24), 24)"))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only there are other numbers for the same machine")
def test_filter_refuses_the_numbers_of_x32():
    assert "REFUSED 38" in jailed(native("call(0x40000000 | 39, 0)"))


def test_process_has_no_powers_and_another_host_name():
    body = """
status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())
import json
print(json.dumps({name: status[name].strip() for name in ('CapEff', 'CapPrm', 'CapBnd', 'NoNewPrivs', 'Seccomp')}))
print(os.uname().nodename, sorted(os.environ), os.getcwd())
"""
    with Jail(
        native(body), environment=ENVIRONMENT, readable=[*LIBRARIES, Path("/proc")], memory_bytes=64 * MIB
    ) as jail:
        said = jail.process.communicate(timeout=60)[0].decode().splitlines()
    assert json.loads(said[0]) == {
        **dict.fromkeys(("CapEff", "CapPrm", "CapBnd"), "0" * 16),
        "NoNewPrivs": "1",
        "Seccomp": "2",
    }
    assert said[1] == f"evaluator {sorted({*ENVIRONMENT, 'LC_CTYPE'})} /"  # the last is Python's own doing


def test_process_inherits_no_descriptor():
    with Path("/etc/passwd").open() as ours, contextlib.ExitStack() as closing:
        inherited = os.dup(ours.fileno())
        closing.callback(os.close, inherited)
        os.set_inheritable(inherited, True)  # noqa: FBT003 - it takes no name
        body = f"os.fstat({inherited})"
        assert "REFUSED 9" in jailed(native(body))
        assert (
            "REACHED"
            in subprocess.run(native(body), close_fds=False, capture_output=True, text=True, check=True).stdout
        )


# -- Deno -------------------------------------------------------------------------------------------------------------
DENO_ATTACKS = {
    "read": "Deno.readTextFileSync(canary)",
    "write": "Deno.writeTextFileSync(canary + '.new', 'x')",
    "list": "[...Deno.readDirSync('/etc')].length || fail()",
    "remove": "Deno.writeTextFileSync(canary + '.new', 'x'); Deno.removeSync(canary + '.new')",
    "tcp": "await Deno.connect({hostname: '127.0.0.1', port: tcp})",
    "unix": "await Deno.connect({transport: 'unix', path: stream})",
    "udp": "await Deno.listenDatagram({transport: 'udp', hostname: '127.0.0.1', port: 0}).send(new Uint8Array(1), {transport: 'udp', hostname: '127.0.0.1', port: udp})",
    "serve": "Deno.listen({hostname: '127.0.0.1', port: 0}).close()",
    "fetch-file": "await (await fetch('file://' + canary)).text()",
    "run": "new Deno.Command('/bin/true').outputSync()",
    "kill": "Deno.kill(victim, 'SIGCONT')",
    "environ": "Deno.readTextFileSync(`/proc/${victim}/environ`)",
    "cmdline": "Deno.readTextFileSync(`/proc/${victim}/cmdline`)",
    "ffi": "const l = Deno.dlopen('libc.so.6', {fork: {parameters: [], result: 'i32'}}); const p = l.symbols.fork(); if (p < 0) fail(); if (p === 0) Deno.exit(0)",
    "watch": "Deno.watchFs('/tmp').close()",
    "dataset": "new (await import('node:sqlite')).DatabaseSync(canary + '.new').exec('create table t (a)')",
}


@pytest.mark.parametrize("body", DENO_ATTACKS.values(), ids=DENO_ATTACKS)
def test_deno_with_every_permission_reaches_nothing(body, deno, canary, victim, heard, tmp_path, tmp_path_factory):
    script = tmp_path_factory.mktemp("script") / "attack.js"
    names = {"canary": str(canary), "victim": victim.pid, "tcp": heard.tcp.getsockname()[1]}
    names |= {"udp": heard.udp.getsockname()[1], "stream": heard.stream_path}
    said = "".join(f"const {name} = {json.dumps(value)};" for name, value in names.items())
    script.write_text(
        f"{said} const fail = () => {{ throw new Error('failed'); }};"
        f"try {{ {body}; console.log('REACHED'); }} catch (e) {{ console.log('REFUSED', e.message); }} Deno.exit(0);"
    )
    command = [deno, "run", "-A", "--unstable-net", *ALONE, str(script)]
    assert "REFUSED" in jailed(command, script.parent)
    assert not heard.anything()
    assert list(tmp_path.iterdir()) == [canary]
    assert "REACHED" in unjailed(command)
    for made in set(tmp_path.iterdir()) - {canary}:
        made.unlink()


WORK = """
import vm from "node:vm";
import { stripTypeScriptTypes } from "node:module";
const out = {};
let s = 0; for (let i = 0; i < 3e7; i++) s = (s * 31 + i) | 0; out.hot = s;
out.intl = new Intl.DateTimeFormat("en-US", {timeZone: "Asia/Tokyo", dateStyle: "full"}).format(0);
out.sorted = ["z", "\\u00e4", "a"].sort(new Intl.Collator("sv").compare).join("");
out.zoned = typeof Temporal === "undefined" ? "" : Temporal.ZonedDateTime.from("2024-03-10T01:30-05:00[America/New_York]").add({hours: 1}).toString();
out.zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
out.large = new Float64Array(1 << 24).fill(1).length;
const grows = new ArrayBuffer(1024, {maxByteLength: 1 << 24}); grows.resize(1 << 22);
out.waited = Atomics.wait(new Int32Array(new SharedArrayBuffer(1024)), 0, 0, 20);
out.pattern = /(a+)+b/.test("a".repeat(20)); out.replaced = "x".repeat(100000).replace(/x/gu, "yy").length;
out.json = JSON.parse(JSON.stringify(Array.from({length: 20000}, (_, i) => ({i})))).length;
let contexts = 0;
for (let i = 0; i < 300; i++) {
  const c = vm.createContext({}, {codeGeneration: {strings: false, wasm: false}, microtaskMode: "afterEvaluate"});
  contexts += vm.runInContext("[1].map(n => n).length", c, {timeout: 1000});
}
out.contexts = contexts;
try { vm.runInContext("for(;;);", vm.createContext({}), {timeout: 50}); } catch (e) { out.stopped = e.code; }
out.stripped = stripTypeScriptTypes("enum A {B}; const x: number = 1", {mode: "transform"}).includes("number");
let junk = []; for (let i = 0; i < 2e6; i++) { junk.push({i}); if (junk.length > 2e5) junk = []; }
await new Promise(r => setTimeout(r, 20));
const worker = new Worker("data:text/javascript,postMessage(6*7)", {type: "module"});
out.worker = await new Promise(r => { worker.onmessage = e => r(e.data); }); worker.terminate();
out.read = await Deno.stdin.read(new Uint8Array(100));
console.log(JSON.stringify(out));
"""


def test_deno_works_as_ever(deno, tmp_path):
    script = tmp_path / "work.js"
    script.write_text(WORK)
    command = [deno, "run", *ALONE, str(script)]
    with Jail(command, environment=ENVIRONMENT, readable=[tmp_path], memory_bytes=512 * MIB) as jail:
        said, complaint = jail.process.communicate(b"hello\n", timeout=60)
        assert jail.process.returncode == 0, complaint
        assert not jail.ran_out_of_memory()
    outside = subprocess.run(command, env=ENVIRONMENT, input=b"hello\n", capture_output=True, check=True).stdout
    assert said == outside
    assert json.loads(said)["worker"] == 42


def test_deno_can_have_workers(deno, tmp_path):
    script = tmp_path / "workers.js"
    script.write_text(
        "const start = () => new Worker('data:text/javascript,postMessage(1)', {type: 'module'});"
        "const all = Array.from({length: 8}, () => new Promise(r => { start().onmessage = e => r(e.data); }));"
        "console.log((await Promise.all(all)).length); Deno.exit(0);"
    )
    assert jailed([deno, "run", *ALONE, str(script)], tmp_path) == "8\n"


def test_deno_checks_types(deno, tmp_path):
    (tmp_path / "right.ts").write_text("export const a: number = 1;\n")
    (tmp_path / "wrong.ts").write_text("export const a: number = 'x';\n")
    options = ("--no-remote", "--no-npm", "--no-config", "--no-lock")
    assert "error" not in jailed([deno, "check", *options, str(tmp_path / "right.ts")], tmp_path)
    assert "TS2322" in jailed([deno, "check", *options, str(tmp_path / "wrong.ts")], tmp_path)


# -- memory -----------------------------------------------------------------------------------------------------------
@pytest.fixture(params=["group", "watch"])
def limited(request, monkeypatch):
    """By a cgroup, and by looking: as where there are no cgroups."""
    if request.param == "watch":
        monkeypatch.setattr(jails, "_missing", lambda: frozenset({"group"}))
    return request.param


GREEDY = {
    "pieces": "const a = []; for (;;) { a.push(new Uint8Array(1 << 20).fill(1)); }",
    "heap": "const a = []; for (;;) { a.push({i: a.length, text: 'x' + a.length}); }",
    "text": "const a = []; for (;;) { a.push(String.fromCharCode(a.length % 60000).repeat(1 << 16) + 'x'); JSON.stringify(a.at(-1)); }",
    "shared": "const a = []; for (;;) { a.push(new Uint8Array(new SharedArrayBuffer(1 << 20)).fill(1)); }",
}


def deno_that(deno: str, place: Path, does: str, *flags: str) -> list[str]:
    script = place / "held.js"
    script.write_text(f"console.log('ready'); await Deno.stdin.read(new Uint8Array(10)); {does}")
    return [deno, "run", *ALONE, *flags, str(script)]


@pytest.mark.parametrize("does", GREEDY.values(), ids=GREEDY)
def test_memory_that_is_used_up_ends_the_process(does, deno, tmp_path, limited):
    command = deno_that(deno, tmp_path, does, "--v8-flags=--max-old-space-size=4000")
    with held(command, tmp_path, memory_bytes=128 * MIB) as jail:
        _, complaint = jail.process.communicate(timeout=60)
        assert jail.ran_out_of_memory(), (jail.process.returncode, complaint)
        assert jail.process.returncode == -9
    assert jail.ran_out_of_memory()  # also when it is closed


def test_native_memory_that_is_used_up_ends_the_process(limited):
    body = "print('ready', flush=True); input(); a = []\nwhile True: a.append(b'x' * (1 << 20))"
    with held(native(body), memory_bytes=128 * MIB) as jail:
        jail.process.wait(60)
        assert jail.ran_out_of_memory()


def test_memory_that_is_never_touched_is_refused_at_once(deno, tmp_path, limited):
    does = "try { new ArrayBuffer(2 ** 31); console.log('had'); } catch (e) { console.log(e.name); }"
    command = deno_that(deno, tmp_path, does)
    with held(command, tmp_path, memory_bytes=256 * MIB) as jail:
        assert jail.process.communicate(timeout=60)[0] == b"RangeError\n"
        assert not jail.ran_out_of_memory()
    assert (
        "had"
        in subprocess.run(command, env=ENVIRONMENT, input="go\n", capture_output=True, text=True, check=True).stdout
    )


def test_memory_within_the_limit_can_be_used(deno, tmp_path, limited):
    does = "for (let i = 0; i < 5; i++) { new Uint8Array(100 << 20).fill(1); } console.log('had');"
    with held(deno_that(deno, tmp_path, does), tmp_path, memory_bytes=256 * MIB) as jail:
        assert jail.process.communicate(timeout=60)[0] == b"had\n"
        assert not jail.ran_out_of_memory()


def test_other_deaths_are_not_for_memory(deno, tmp_path, limited):
    with held(deno_that(deno, tmp_path, "Deno.exit(3)"), tmp_path, memory_bytes=64 * MIB) as jail:
        assert jail.process.wait(60) == 3
        assert not jail.ran_out_of_memory()
    with held(deno_that(deno, tmp_path, "for(;;);"), tmp_path, memory_bytes=64 * MIB) as jail:
        jail.close()
        assert not jail.ran_out_of_memory()


def test_jail_tells_what_was_used(deno, tmp_path):
    does = "new Uint8Array(100 << 20).fill(1); for (;;);"
    with held(deno_that(deno, tmp_path, does), tmp_path, memory_bytes=512 * MIB) as jail:
        until = time.monotonic() + 30
        while (jail.peak_bytes() or 0) < 100 * MIB and time.monotonic() < until:
            time.sleep(0.01)
        assert 100 * MIB < jail.peak_bytes() < 400 * MIB
        jail.reset_peak()
        assert jail.peak_bytes() < 400 * MIB
        assert jail.held_bytes()
        before = jail.cpu_seconds()
        time.sleep(0.3)
        assert jail.cpu_seconds() > before
    assert (jail.peak_bytes(), jail.held_bytes(), jail.cpu_seconds()) == (None, None, None)


# -- starting and ending ----------------------------------------------------------------------------------------------
def groups() -> list[str]:
    return [path.name for path in memory.home().path.iterdir() if path.name.startswith("evalcell-deno-")]


def descriptors_open() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def ours() -> list[str]:
    return [name for name in groups() if f"-{os.getpid()}-" in name]


def test_fifty_starts_leave_nothing_behind(limited):
    threads, descriptors = threading.active_count(), descriptors_open()
    for _ in range(50):
        with Jail([PYTHON, "-c", "0"], environment={}, readable=LIBRARIES, memory_bytes=64 * MIB) as jail:
            jail.close()
        assert gone(jail.process.pid, 0.1)
    assert ours() == []
    assert threading.active_count() <= threads + 1  # the one that starts all
    assert descriptors_open() == descriptors
    with pytest.raises(ChildProcessError):
        os.waitpid(jail.process.pid, os.WNOHANG)


def test_process_outlives_the_thread_that_asked_for_it():
    made = []
    asking = threading.Thread(
        target=lambda: made.append(
            Jail([PYTHON, "-c", "input()"], environment={}, readable=LIBRARIES, memory_bytes=64 * MIB)
        )
    )
    asking.start()
    asking.join()
    with made[0] as jail:
        time.sleep(0.3)
        assert jail.process.poll() is None


OWNER = """
import sys
from pathlib import Path
from evalcell_sandboxes.deno.jail import Jail
jail = Jail(sys.argv[1:], environment={}, readable=[Path("/")], memory_bytes=1 << 26)
print(jail.process.pid, flush=True)
input()
"""


def test_process_dies_with_its_owner_and_leaves_a_group_to_sweep():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", OWNER, PYTHON, "-c", "import time; time.sleep(600)"]
    with (
        Jail([PYTHON, "-c", "input()"], environment={}, readable=LIBRARIES, memory_bytes=64 * MIB) as living,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as owner,
    ):
        pid = int(owner.stdout.readline())
        time.sleep(0.2)
        jails.sweep()
        assert any(f"-{owner.pid}-" in name for name in groups())  # its owner lives
        owner.kill()
        owner.wait()
        assert gone(pid)
        until = time.monotonic() + 5
        while any(f"-{owner.pid}-" in name for name in groups()) and time.monotonic() < until:
            jails.sweep()
        assert not any(f"-{owner.pid}-" in name for name in groups())
        assert len(ours()) == 1
        assert living.process.poll() is None


def test_command_that_is_not_there_is_complained_of(tmp_path):
    shutil.copy("/bin/true", tmp_path / "program")
    with Jail([str(tmp_path / "program")], environment={}, readable=[tmp_path / "none"], memory_bytes=MIB) as jail:
        _, complaint = jail.process.communicate(timeout=60)
    assert jail.process.returncode == 125
    assert b"landlock" in complaint
    assert b"none" in complaint


def test_wall_that_stood_before_is_no_matter_of_luck(monkeypatch):
    """A wall that cannot be raised, and was not known to be missing, is the end of it."""
    broken = memory.home().path / "evalcell-none"

    class Broken(memory.MemoryGroup):
        @property
        def members(self) -> Path:
            return broken

    monkeypatch.setattr(memory, "MemoryGroup", Broken)
    assert "group: " in jailed(native("pass"))


# -- as an ordinary user ----------------------------------------------------------------------------------------------
NOBODY = 65534
ORDINARY = """
import json, os, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1]]
import jailing
from evalcell_sandboxes.deno import jail
deno, canary, port = sys.argv[2:5]
found = {"lacking": jail.lacking(), "uid": os.getuid()}
found["read"] = jailing.jailed(jailing.native("open(canary).read()", canary=canary))
found["connect"] = jailing.jailed(jailing.native("socket.create_connection(('127.0.0.1', port), 5)", port=int(port)))
found["fork"] = jailing.jailed(jailing.native("os.fork() or os._exit(0)"))
found["threads"] = jailing.jailed(jailing.native('''
import threading
try:
    for _ in range(2000): threading.Thread(target=lambda: __import__("time").sleep(60), daemon=True).start()
except RuntimeError: raise OSError(11, "") from None
'''))
place = Path(sys.argv[1])
script = Path(sys.argv[5])
def deno_that(does):
    script.write_text(f"console.log('ready'); await Deno.stdin.read(new Uint8Array(10)); {does}")
    return [deno, "run", *jailing.ALONE, str(script)]
with jailing.held(deno_that("console.log([1,2].map(n => n * 21)[1])"), script.parent, memory_bytes=1 << 28) as one:
    found["deno"] = one.process.communicate(timeout=60)[0].decode()
with jailing.held(deno_that("const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1))"), script.parent, memory_bytes=1 << 27) as one:
    one.process.wait(60)
    found["starved"] = one.ran_out_of_memory()
print(json.dumps(found))
"""


def _python_of_nobody(paths: list[str]) -> str:
    """An interpreter like this one that an ordinary user may run, if ours lies in root's own home."""
    same = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in filter(None, (sys.executable, shutil.which(same, path="/usr/local/bin:/usr/bin"))):
        with contextlib.suppress(PermissionError):
            tried = subprocess.run(
                [candidate, "-c", "import msgspec, os; open(os.path.realpath(os.sys.executable))"],
                user=NOBODY, group=NOBODY, extra_groups=[], env={"PYTHONPATH": os.pathsep.join(paths)}, cwd="/",
                capture_output=True, check=False,
            )  # fmt: skip
            if tried.returncode == 0:
                return candidate
    return pytest.skip("no interpreter here that an ordinary user may run, with msgspec")


def test_jail_holds_for_an_ordinary_user(deno, heard):
    if os.geteuid() != 0:
        promised("only root can become an ordinary user")
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        place.chmod(0o755)
        paths = [path for path in sys.path if path and Path(path).exists() and not path.startswith(sys.base_prefix)]
        python = _python_of_nobody(paths)
        copied = place / "deno"
        shutil.copy(deno, copied)
        copied.chmod(0o755)
        (place / "canary").write_text("secret")
        (place / "script").mkdir()
        (place / "script").chmod(0o777)
        shutil.copy(jailing.__file__, place)
        arguments = [
            str(place),
            str(copied),
            str(place / "canary"),
            str(heard.tcp.getsockname()[1]),
            str(place / "script" / "s.js"),
        ]
        done = subprocess.run(
            [python, "-B", "-c", textwrap.dedent(ORDINARY), *arguments], user=NOBODY, group=NOBODY, extra_groups=[],
            env={"PYTHONPATH": os.pathsep.join(paths)}, cwd="/", capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["uid"] == NOBODY
    assert not [phrase for phrase in found["lacking"] if "cgroup" not in phrase]
    for attack in ("read", "connect", "fork", "threads"):
        assert "REFUSED" in found[attack], attack
    assert found["deno"] == "42\n"
    assert found["starved"]
    assert not heard.anything()


# -- where groups may be made -----------------------------------------------------------------------------------------
V1 = "30 20 0:26 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
V2 = "30 20 0:26 {root} /sys/fs/cgroup rw - cgroup2 cgroup2 rw"


@pytest.mark.parametrize(
    ("groups_", "mounts", "expected"),
    [
        pytest.param("4:memory:/a/b\n0::/", V1.format(root="/"), ["/sys/fs/cgroup/memory/a/b"], id="1"),
        pytest.param("4:memory:/docker/x", V1.format(root="/docker/x"), ["/sys/fs/cgroup/memory"], id="1-container"),
        pytest.param("0::/user/app", V2.format(root="/"), ["/sys/fs/cgroup/user/app", "/sys/fs/cgroup/user"], id="2"),
        pytest.param("0::/", V2.format(root="/"), ["/sys/fs/cgroup"], id="2-root"),
        pytest.param(
            "0::/../other", V2.format(root="/"), ["/sys/fs/cgroup/../other", "/sys/fs/cgroup/.."], id="2-outside"
        ),
        pytest.param("4:memory:/a", V2.format(root="/"), [], id="1-not-mounted"),
    ],
)
def test_groups_are_made_at_or_beside_our_own(groups_, mounts, expected):
    assert [str(place.path) for place in memory.places(groups_, mounts)] == expected
