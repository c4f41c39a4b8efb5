"""Denial of service: time, memory, stack, output, disk, descriptors, and the interpreter's own death."""

import sys

from unsandboxed import Unsandboxed

from catalogue.attack import Attack, ended_the_run, flooded_the_output, never_ended, returned_true, used_up_memory
from evalcell_sandboxes import Crashed, Exceeded, Raised, Returned

_SHORT = {"wall_seconds": 0.3}
_SMALL = {"wall_seconds": 5.0, "memory_bytes": 96 * 1024**2}


def _spin(name: str, body: str, *outcomes: type) -> Attack:
    return Attack(f"spin-{name}", body, outcomes or (Exceeded,), never_ended, ("wall_seconds",), limits=_SHORT)


def _grow(name: str, body: str) -> Attack:
    return Attack(f"grow-{name}", body, (Exceeded,), used_up_memory, ("memory_bytes",), limits=_SMALL)


def _dig(name: str, body: str) -> Attack:
    """Recurses in native code, with the interpreter's own limit out of the way."""
    body = f"sys.setrecursionlimit(10**8)\n{body}"
    return Attack(f"dig-{name}", body, (Raised, Exceeded), _fell, ("RecursionError", "stack", "memory_bytes"))


def _flood(name: str, body: str) -> Attack:
    return Attack(f"flood-{name}", body, (Returned, Exceeded), flooded_the_output, ("wall_seconds",), limits=_SHORT)


def _crash(name: str, body: str, *outcomes: type) -> Attack:
    return Attack(f"crash-{name}", body, outcomes or (Crashed,), ended_the_run)


def _fell(run: Unsandboxed) -> bool:
    """Past its own limit CPython 3.11 runs off the end of the native stack; later versions look where it ends."""
    noticed = sys.version_info >= (3, 12) and run.error.get("type") in ("RecursionError", "MemoryError")
    return noticed or ended_the_run(run)


SPINS = (
    _spin("loop", "while True: pass"),
    _spin("swallowing", "while True:\n    try:\n        while True: pass\n    except BaseException: pass"),
    _spin("in-finally", "try: return 1\nfinally:\n    while True: pass"),
    _spin("in-finalizer", "class Late:\n    def __del__(self):\n        while True: pass\nLate()"),
    _spin("in-result", "class Lie(dict):\n    def values(self):\n        while True: pass\n    items = values\nreturn Lie(a=1)"),
    _spin("in-exception-text", "class Lie(Exception):\n    def __str__(self):\n        while True: pass\nraise Lie"),
    _spin("in-print", "class Lie:\n    def __str__(self):\n        while True: pass\nprint(Lie())"),
    _spin("iterator", "sum(1 for _ in iter(int, 1))"),
    _spin("native", "'x' in iter(str, 'x')"),
    _spin("regex", "re.match('(a+)+$', 'a' * 40 + 'b')"),
    _spin("integer", "10 ** 10 ** 8"),
    _spin("integer-text", "sys.set_int_max_str_digits(0); str(7 ** 10 ** 7)"),
    _spin("permutations", "import itertools; sum(1 for _ in itertools.permutations(range(20)))"),
    _spin("hash-collisions", "class Lie:\n    def __hash__(self): return 1\n    def __eq__(self, other): return False\n{Lie(): n for n in range(10**6)}"),
    _spin("difflib", "import difflib; difflib.SequenceMatcher(None, 'ab' * 10**5, 'ba' * 10**5, autojunk=False).ratio()"),
    _spin("sqlite", "import sqlite3; sqlite3.connect(':memory:').execute('with recursive r(n) as (select 1 union all select n + 1 from r) select count(*) from r').fetchall()"),
    _spin("sleep", "time.sleep(10**6)"),
    _spin("sleep-swallowing", "while True:\n    try: time.sleep(10)\n    except BaseException: pass"),
    _spin("sleep-little-by-little", "while True: time.sleep(0.001)"),
    _spin("select", "import select; select.select([], [], [], 10**6)"),
    _spin("await", "import asyncio; asyncio.run(asyncio.sleep(10**6))"),
    _spin("profiler", "def again(*_):\n    while True: pass\nsys.setprofile(again)\nlen('')"),
    _spin("import", "sys.meta_path.insert(0, type('Hook', (), {'find_spec': staticmethod(lambda *a: [None for _ in iter(int, 1)])}))\nimport nothing_of_that_name"),
    # Standard input is at its end behind a wall; without one it may never come.
    Attack("wait-input", "input()", (Raised,), never_ended, ("EOFError",)),
    Attack("wait-stdin", "sys.stdin.read(); return 0", (Returned,), never_ended),
    Attack("wait-descriptor", "os.read(0, 10); return 0", (Returned,), never_ended),
    Attack("wait-future", "import asyncio\nasync def wait(): await asyncio.get_running_loop().create_future()\nasyncio.run(wait())", (Raised,), never_ended, ("RuntimeError",)),
    # Where there is one thread, waiting for another is a deadlock that the interpreter cannot survive.
    Attack("wait-lock", "lock = threading.Lock(); lock.acquire(); lock.acquire()", (Exceeded, Crashed), never_ended, limits=_SHORT),
    Attack("wait-queue", "import queue; queue.Queue().get()", (Exceeded, Crashed), never_ended, limits=_SHORT),
)  # fmt: skip

GROWTH = (
    _grow("bytes", "bytearray(2 * 10**9)"),
    _grow("text", "return len('x' * (2 * 10**9))"),
    _grow("list", "kept = []\nwhile True: kept.append(bytearray(2**20))"),
    _grow("nested", "kept = []\nwhile True: kept = [kept, kept * 2, bytearray(2**16)]"),
    _grow("dict", "return {n: bytes(10_000) for n in range(10**9)}"),
    _grow("swallowing", "kept = []\nwhile True:\n    try: kept.append(bytearray(2**20))\n    except MemoryError: raise\n    except BaseException: pass"),
    _grow("zip-bomb", "import gzip; return len(gzip.decompress(gzip.compress(bytes(2**23)) * 80))"),
    _grow("format", "return '{:>2000000000}'.format(1)"),
    _grow("shift", "return (1 << 10**10).bit_length()"),
    _grow("recursion", "sys.setrecursionlimit(10**8)\ndef again(kept): return again([bytearray(2**16), kept])\nagain(None)"),
    Attack(
        "grow-after-swallowing",
        # Out of memory for ever: what catches the error may go on, until its time is over.
        "kept = []\nwhile True:\n    try: kept.append(bytearray(2**20))\n    except MemoryError: pass",
        (Exceeded, Crashed),
        never_ended,
        ("wall_seconds", "memory_bytes"),
        limits={**_SMALL, "wall_seconds": 0.5},
    ),
)  # fmt: skip

_DEEP = "deep = []\nfor _ in range({times}): deep = [deep]\n"

DEPTHS = (
    _dig("json", "json.loads('[' * 100_000)"),
    _dig("repr", _DEEP.format(times=100_000) + "repr(deep)"),
    _dig("pickle", "import pickle\n" + _DEEP.format(times=100_000) + "pickle.dumps(deep)"),
    _dig("compare", "a = b = ()\nfor _ in range(100_000): a, b = (a,), (b,)\nreturn a == b"),
    _dig("own-repr", "class Own:\n    def __repr__(self): return repr(self)\nrepr(Own())"),
    _dig("attribute", "class Own:\n    def __getattr__(self, name): return getattr(self, name + 'x')\nOwn().a"),
    _dig("isinstance", "class Own(type):\n    def __instancecheck__(cls, other): return isinstance(other, cls)\nisinstance(1, Own('x', (), {}))"),
    Attack("dig-free", _DEEP.format(times=1_000_000) + "del deep; return 'freed'", (Returned, Exceeded), lambda run: run.attack == "freed", ("stack",)),
)  # fmt: skip

FLOODS = (
    _flood("lines", "for _ in range(10**9): print('x' * 10_000)"),
    _flood("one-line", "for _ in range(10**9): sys.stdout.write('x' * 10_000)"),
    _flood("stderr", "sys.stderr = sys.stdout\nfor _ in range(10**9): print('x' * 10_000, file=sys.stderr)"),
    _flood("raw", "for _ in range(10**9): os.write(1, b'x' * 10_000)"),
    _flood("at-once", "for _ in range(100): os.write(1, b'x' * 10**7)\nreturn 0"),
    Attack(
        "fill-descriptors",
        "kept = []\nwhile True: kept.append(open(os.devnull))",
        (Raised,),
        lambda run: run.error.get("text", "").startswith("[Errno 24]"),
        ("PermissionError", "OSError", "FileNotFoundError"),
    ),
    Attack(
        "fill-sockets",
        "import socket; kept = []\nwhile True: kept.append(socket.socket())",
        (Raised,),
        lambda run: run.error.get("text", "").startswith("[Errno 24]"),
        ("PermissionError", "OSError"),
    ),
    Attack(
        "fill-disk",
        "with open(loot['target'], 'wb') as file:\n    while True: file.write(bytes(2**20))",
        (Raised,),
        lambda run: run.canaries.target.exists() and run.canaries.target.stat().st_size > 32 * 1024**2,
        ("PermissionError", "OSError", "FileNotFoundError"),
    ),
    Attack(
        "fill-directory",
        "os.mkdir(loot['target'])\nfor n in range(1_000): open(f\"{loot['target']}/{n}\", 'w').close()",
        (Raised,),
        lambda run: len(list(run.canaries.target.glob("*"))) == 1_000,
        ("PermissionError", "OSError", "FileNotFoundError"),
    ),
    Attack(
        "fork-many",
        "children = []\nfor n in range(8):\n    child = os.fork()\n    if not child: os.mkdir(f\"{loot['target']}{n}\"); os._exit(0)\n    children.append(child)\nfor child in children: os.waitpid(child, 0)",
        (Raised,),
        lambda run: len(list(run.canaries.directory.glob("planted*"))) == 8,
        ("AttributeError", "OSError", "BlockingIOError"),
    ),
    Attack(
        "threads-many",
        "threads = [threading.Thread(target=time.sleep, args=(0.2,)) for _ in range(4)]\nfor thread in threads: thread.start()\nreturn threading.active_count() > 4",
        (Raised,),
        returned_true,
        ("RuntimeError",),
    ),
)  # fmt: skip

_CODE = "from opcode import opmap; code = (lambda: 0).__code__\n"

CRASHES = (
    _crash("abort", "os.abort()"),
    _crash("fault", "import faulthandler; faulthandler._sigsegv()"),
    _crash("abort-signal", "import faulthandler; faulthandler._sigabrt()"),
    _crash("float-signal", "import faulthandler; faulthandler._sigfpe()", Crashed, Returned),
    _crash("bytecode-garbage", _CODE + "exec(code.replace(co_code=bytes(range(256)) * 4, co_stacksize=1))", Crashed, Raised, Exceeded),
    _crash("bytecode-constant", _CODE + "exec(code.replace(co_consts=(), co_code=bytes([opmap['LOAD_CONST'], 200, opmap['RETURN_VALUE'], 0])))", Crashed, Raised),
    _crash("bytecode-stack", _CODE + "exec(code.replace(co_code=bytes([opmap['POP_TOP'], 0] * 5_000), co_stacksize=1))", Crashed, Raised, Exceeded),
    _crash("bytecode-local", _CODE + "exec(code.replace(co_code=bytes([opmap['LOAD_FAST'], 255, opmap['CALL'], 9] * 100)))", Crashed, Raised, Exceeded),
    _crash("marshal", "import marshal\ncode = marshal.dumps(compile('def f(a, b):\\n    return [a, b, 1, (2, 3)]\\nf(1, 2)', 'x', 'exec'))\nfor at in range(len(code)):\n    for value in (0, 100, 255):\n        try: exec(marshal.loads(code[:at] + bytes([value]) + code[at + 1:]), {})\n        except Exception: pass", Crashed, Exceeded, Returned),
)  # fmt: skip

DENIAL = (*SPINS, *GROWTH, *DEPTHS, *FLOODS, *CRASHES)
