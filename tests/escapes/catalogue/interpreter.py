"""Interpreter and operating system: out of the interpreter, into the host's files, network and processes."""

from catalogue.attack import (
    Attack,
    got_the_secret,
    killed_the_victim,
    reached_the_listener,
    returned_true,
    touched_files,
)
from evalcell_sandboxes import Crashed, Raised, Returned

# What a wall says of what it does not let through: it is forbidden, not there, or the function does not exist.
_REFUSED = ("PermissionError", "FileNotFoundError", "OSError", "URLError", "OperationalError", "gaierror")
_ABSENT = ("AttributeError", "ModuleNotFoundError", "ImportError", "NotImplementedError", "RuntimeError", *_REFUSED)


def _read(name: str, body: str) -> Attack:
    return Attack(f"read-{name}", body, (Raised,), got_the_secret, _ABSENT)


def _learn(name: str, body: str, outcome: type = Raised) -> Attack:
    """The body returns true if it learnt what it should not."""
    return Attack(f"learn-{name}", body, (outcome,), returned_true, _ABSENT)


def _write(name: str, body: str, *outcomes: type) -> Attack:
    return Attack(f"write-{name}", body, outcomes or (Raised,), touched_files, _ABSENT)


def _connect(name: str, body: str, outcome: type = Raised) -> Attack:
    return Attack(f"connect-{name}", body, (outcome,), reached_the_listener, _ABSENT)


def _start(name: str, body: str) -> Attack:
    """The body starts something that writes to the target."""
    return Attack(f"start-{name}", body, (Raised,), touched_files, _ABSENT)


READS = (
    _read("open", "return open(loot['file']).read()"),
    _read("os-open", "return os.read(os.open(loot['file'], os.O_RDONLY), 99).decode()"),
    _read("fileio", "import io; return io.FileIO(loot['file']).read().decode()"),
    _read("open-code", "import io; return io.open_code(loot['file']).read().decode()"),
    _read("pathlib", "import pathlib; return pathlib.Path(loot['file']).read_text()"),
    _read("dot-dot", "return open('/tmp/' + '../' * 20 + loot['file']).read()"),
    _read("dot-dot-relative", "return open('../' * 40 + loot['file'].lstrip('/')).read()"),
    _read("double-slash", "return open('/' + loot['file'].replace('/', '//')).read()"),
    _read("chdir", "os.chdir(loot['directory']); return open('treasure.txt').read()"),
    _read("fileinput", "import fileinput; return ''.join(fileinput.input([loot['file']]))"),
    _read("tokenize", "import tokenize; return tokenize.open(loot['file']).read()"),
    _read("codecs", "return codecs.open(loot['file'], encoding='utf-8').read()"),
    _read("runpy", "import runpy; return runpy.run_path(loot['directory'] + '/module.py')['SECRET']"),
    _read("urllib", "import urllib.request as u; return u.urlopen('file://' + loot['file']).read().decode()"),
    _read(
        "loader",
        "import importlib.machinery as m; return m.SourceFileLoader('x', loot['file']).get_data(loot['file']).decode()",
    ),
    _read(
        "import",
        "import importlib; sys.path.insert(0, loot['directory']); return importlib.import_module('module').SECRET",
    ),
    _read(
        "subclass-walk",
        "walk = [().__class__.__base__]\n"
        "for found in walk: walk += [c for c in type.__subclasses__(found) if c not in walk]\n"
        "loader = next(c for c in walk if c.__name__ == 'FileLoader')\n"
        "return loader('x', loot['file']).get_data(loot['file']).decode()",
    ),
    _read("builtins-of-a-frame", "return sys._getframe(1).f_builtins['open'](loot['file']).read()"),
    _read(
        "sqlite",
        "import sqlite3; return str(sqlite3.connect(loot['database']).execute('select * from t').fetchall())",
    ),
    _read(
        "sqlite-attach",
        "import sqlite3; opened = sqlite3.connect(':memory:')\n"
        "opened.execute('attach ? as other', (loot['database'],))\n"
        "return str(opened.execute('select * from other.t').fetchall())",
    ),
    _read(
        "mmap",
        "import mmap; return mmap.mmap(os.open(loot['file'], os.O_RDONLY), 0, prot=mmap.PROT_READ)[:].decode()",
    ),
    _read("xml-entity", """
import xml.sax, xml.sax.handler
class Text(xml.sax.handler.ContentHandler):
    found = ''
    def characters(self, content): self.found += content
text, parser = Text(), xml.sax.make_parser()
parser.setContentHandler(text)
parser.setFeature(xml.sax.handler.feature_external_ges, True)
parser.feed(f'<!DOCTYPE x [<!ENTITY e SYSTEM "file://{loot["file"]}">]><x>&e;</x>')
return text.found
"""),
    _read("own-environ", "return open('/proc/self/environ').read()"),
    _read(
        "other-environs",
        "found = []\n"
        "for process in (1, loot['victim']):\n"
        "    try: found.append(open(f'/proc/{process}/environ').read())\n"
        "    except OSError as error: refused = error\n"
        "if not found: raise refused\n"
        "return found",
    ),
)  # fmt: skip

ENVIRONMENT = (
    Attack("environment-os", "return os.environ.get(loot['variable'])", (Returned,), got_the_secret),
    Attack("environment-getenv", "return os.getenv(loot['variable'])", (Returned,), got_the_secret),
    Attack("environment-all", "return dict(os.environ)", (Returned,), got_the_secret),
    Attack(
        "environment-posix",
        "import posix; return posix.environ.get(loot['variable'].encode(), b'').decode()",
        (Returned,),
        got_the_secret,
    ),
    Attack(
        "environment-expandvars",
        "return os.path.expandvars('$' + loot['variable'])",
        (Returned,),
        got_the_secret,
    ),
)

LEARNS = (
    _learn("other-cmdlines", "return 'sleep' in open(f\"/proc/{loot['victim']}/cmdline\").read()"),
    _learn("own-memory", "return os.pread(os.open('/proc/self/mem', os.O_RDWR), 4, id(nonce)) != b''"),
    _learn("own-maps", "return 'python' in open('/proc/self/maps').read()"),
    _learn("kernel", "return open('/proc/version').read() != ''"),
    _learn("devices", "return [open(f'/dev/{name}', 'rb').read(1) for name in ('zero', 'urandom')] != []"),
    _learn("directory", "return 'treasure.txt' in os.listdir(loot['directory'])"),
    _learn("root", "return os.listdir('/') != []"),
    _learn("scandir", "return 'treasure.txt' in [entry.name for entry in os.scandir(loot['directory'])]"),
    _learn("glob", "import glob; return glob.glob(loot['directory'] + '/tr*.txt') != []", Returned),
    _learn("walk", "return any(names for _, _, names in os.walk(loot['directory']))", Returned),
    _learn("size", "return os.stat(loot['file']).st_size > 0"),
    _learn("exists", "return os.path.exists(loot['file'])", Returned),
    _learn("access", "return os.access(loot['file'], os.R_OK)", Returned),
    _learn("trailing-slash", "return os.stat(loot['directory'] + '/').st_mode > 0"),
    _learn("link", "return os.readlink('/proc/self/exe') != ''"),
    _learn("disk", "import shutil; return shutil.disk_usage(loot['directory']).total > 0"),
    _learn("user", "import pwd; return pwd.getpwuid(os.getuid()).pw_name != ''"),
    _learn("user-id", "return os.getuid() >= 0"),
    _learn("processes", "return os.getppid() > 0"),
    _learn("host-name", "return os.uname().nodename == loot['host']", Returned),
    _learn("kernel-release", "import platform; return platform.release() == loot['release']", Returned),
    _learn("clock", "return abs(time.time() - loot['now']) < 3600", Returned),
    _learn("boot-time", "return time.monotonic() > 10", Returned),
    _learn("load", "return os.getloadavg()[0] >= 0"),
    _learn("name-lookup", "import socket; return socket.getaddrinfo('localhost', 80) != []"),
    _learn("interfaces", "import socket; return socket.if_nameindex() != []"),
    _learn(
        "descriptors",
        "found = []\n"
        "for descriptor in range(3, 1024):\n"
        "    for touch in (os.fstat, lambda fd: os.read(fd, 1), lambda fd: os.write(fd, b'x'), os.dup, os.isatty):\n"
        "        try: found.append(touch(descriptor))\n"
        "        except OSError: pass\n"
        "return any(found)",
        Returned,
    ),
)  # fmt: skip

WRITES = (
    _write("open", "open(loot['target'], 'w').write('x')"),
    _write("append", "open(loot['file'], 'a').write('x')"),
    _write("os-open", "os.write(os.open(loot['target'], os.O_WRONLY | os.O_CREAT, 0o600), b'x')"),
    _write("pathlib", "import pathlib; pathlib.Path(loot['target']).write_text('x')"),
    _write("tmp", "import tempfile; open(tempfile.mkstemp(dir=loot['directory'])[1], 'w').write('x')"),
    _write("dot-dot", "open(loot['directory'] + '/../canaries/planted', 'w').write('x')"),
    _write("truncate", "os.truncate(loot['file'], 0)"),
    _write("unlink", "os.unlink(loot['file'])"),
    _write("mkdir", "os.mkdir(loot['target'])"),
    _write("rmtree", "import shutil; shutil.rmtree(loot['directory'])"),
    _write("symlink", "os.symlink(loot['file'], loot['target'])"),
    # wasmtime 50 traps where two handles are lent in one call, before any function of ours is asked.
    _write("hard-link", "os.link(loot['file'], loot['target'])", Raised, Crashed),
    _write("rename", "os.rename(loot['file'], loot['target'])", Raised, Crashed),
    # libc for WebAssembly has no modes, and says yes without asking anybody.
    _write("chmod", "os.chmod(loot['file'], 0o777)", Raised, Returned),
    _write("fifo", "os.mkfifo(loot['target'])"),
    _write("sqlite", "import sqlite3; sqlite3.connect(loot['target']).execute('create table x (y)')"),
    _write("zipfile", "import zipfile; zipfile.ZipFile(loot['target'], 'w').close()"),
    _write("logging", "open(logging.FileHandler(loot['target']).baseFilename).close()"),
    _write("bytecode", "import py_compile; py_compile.compile(loot['directory'] + '/module.py', loot['target'], doraise=True)"),
)  # fmt: skip

CONNECTIONS = (
    _connect("tcp", "import socket; socket.create_connection(('127.0.0.1', loot['port']), 2)"),
    _connect("tcp-low-level", "import _socket; _socket.socket(2, 1).connect(('127.0.0.1', loot['port']))"),
    _connect("tcp-non-blocking", "import socket; s = socket.socket(); s.setblocking(False); s.connect_ex(('127.0.0.1', loot['port']))"),
    _connect("tcp6", "import socket; socket.create_connection(('::1', loot['port']), 2)"),
    _connect("udp", "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'hit', ('127.0.0.1', loot['port']))"),
    _connect("unix", "import socket; socket.socket(socket.AF_UNIX).connect(loot['unix'])"),
    _connect("abstract", "import socket; socket.socket(socket.AF_UNIX).connect('\\0' + loot['abstract'])"),
    _connect("name", "import socket; socket.create_connection(('localhost', loot['port']), 2)"),
    _connect("urllib", "import urllib.request as u; u.urlopen(f\"http://127.0.0.1:{loot['port']}/\", timeout=2)"),
    _connect("http", "import http.client as h; h.HTTPConnection('127.0.0.1', loot['port'], timeout=2).request('GET', '/')"),
    _connect("asyncio", "import asyncio; asyncio.run(asyncio.open_connection('127.0.0.1', loot['port']))"),
    _connect("smtp", "import smtplib; s = smtplib.SMTP(timeout=1); s.connect('127.0.0.1', loot['port'])"),
    _connect("ftp", "import ftplib; ftplib.FTP(timeout=1).connect('127.0.0.1', loot['port'])"),
    _connect("xml-rpc", "import xmlrpc.client as x; x.ServerProxy(f\"http://127.0.0.1:{loot['port']}\").hit()"),
    _connect("logging", "import logging.handlers as h; s = h.SocketHandler('127.0.0.1', loot['port']).makeSocket()"),
)  # fmt: skip

_PYTHON = "[loot['python'], '-c', 'import sys; open(sys.argv[1], \"w\")', loot['target']]"

PROCESSES = (
    _start("subprocess", f"import subprocess; subprocess.run({_PYTHON}, check=True)"),
    _start("system", "if os.system('touch ' + loot['target']): raise OSError('refused')"),
    _start("popen", "os.popen('touch ' + loot['target']).read()"),
    _start("spawn", f"os.spawnv(os.P_WAIT, loot['python'], {_PYTHON})"),
    _start("posix-spawn", f"os.waitpid(os.posix_spawn(loot['python'], {_PYTHON}, {{}}), 0)"),
    _start("exec", f"os.execv(loot['python'], {_PYTHON})"),
    _start("shell-of-asyncio", "import asyncio; asyncio.run(asyncio.create_subprocess_shell('touch ' + loot['target'])); time.sleep(0.2)"),
    _start("pty", f"import pty; pty.spawn({_PYTHON})"),
    _start("multiprocessing", "import multiprocessing as m; p = m.get_context('fork').Process(target=open, args=(loot['target'], 'w')); p.start(); p.join()"),
    _start("process-pool", "import concurrent.futures as c; c.ProcessPoolExecutor(1).submit(os.mkdir, loot['target']).result()"),
    _start("fork", "child = os.fork()\nif not child: os.mkdir(loot['target']); os._exit(0)\nos.waitpid(child, 0)"),
    _start(
        "daemon",
        "child = os.fork()\nif not child:\n    os.setsid()\n    if not os.fork(): os.mkdir(loot['target'])\n    os._exit(0)\n"
        "os.waitpid(child, 0); time.sleep(0.2)",
    ),
    _start("thread", "t = threading.Thread(target=lambda: os.mkdir(loot['target'])); t.start(); t.join()"),
    _start("thread-pool", "import concurrent.futures as c; c.ThreadPoolExecutor(1).submit(os.mkdir, loot['target']).result()"),
    _start("ctypes", "import ctypes; ctypes.CDLL(None).mkdir(loot['target'].encode(), 0o700)"),
    Attack("native-module", "import importlib.machinery as m, importlib.util as u\nspec = u.spec_from_file_location('native', '/' + loot['native'])\nreturn u.module_from_spec(spec) is None", (Raised,), lambda run: "ELF" in run.error.get("text", "") or "too short" in run.error.get("text", ""), _ABSENT),
    Attack("kill", "os.kill(loot['victim'], 9)", (Raised,), killed_the_victim, _ABSENT),
    Attack("kill-group", "os.killpg(os.getpgid(loot['victim']), 9)", (Raised,), killed_the_victim, _ABSENT),
    Attack("kill-pidfd", "import signal; signal.pidfd_send_signal(os.pidfd_open(loot['victim']), 9)", (Raised,), killed_the_victim, _ABSENT),
    Attack("signal-handler", "import signal; signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(0.05); return True", (Raised,), returned_true, _ABSENT),
    Attack("raise-limits", "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (128, 256)); return True", (Raised,), returned_true, _ABSENT),
    Attack("terminal", "import fcntl, termios; fcntl.ioctl(0, termios.FIONREAD, b'1234'); return True", (Raised,), returned_true, _ABSENT),
)  # fmt: skip

INTERPRETER = (*READS, *ENVIRONMENT, *LEARNS, *WRITES, *CONNECTIONS, *PROCESSES)
