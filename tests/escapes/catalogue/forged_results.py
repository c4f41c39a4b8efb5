"""Forged results: a result that `evaluate` did not return, or a value that is not what it says.

The author decides the score of the row that the code is given, so an attack may return what it likes for its own. It
must not speak for another row, pass a fault of its own off as the machinery's, or have a value stored that is none.
"""

from unsandboxed import Unsandboxed

from catalogue.attack import (
    Attack,
    ended_the_run,
    flooded_the_output,
    forged_the_next_row,
    never_ended,
    passed_for_infrastructure,
    spoiled_the_next_row,
    used_up_memory,
    was_accepted,
    was_in_range,
)
from evalcell_sandboxes import Crashed, Exceeded, Invalid, Raised, Returned


def _forge(name: str, body: str, *outcomes: type, succeeded=forged_the_next_row, top: str = "") -> Attack:
    """Reports a result for the row after its own."""
    return Attack(f"forge-{name}", body, outcomes or (Returned,), succeeded, top=top)


def _return(name: str, value: str, *outcomes: type, succeeded=was_accepted, before: str = "", **options) -> Attack:
    """Returns a value that no result may be, or that is not what it seems."""
    return Attack(f"return-{name}", f"{before}\nreturn {value}", outcomes, succeeded, **options)


def _end(name: str, body: str, *outcomes: type, names: tuple[str, ...] = ()) -> Attack:
    """Ends the interpreter instead of returning."""
    return Attack(f"end-{name}", body, outcomes, ended_the_run, names)


def _flooded_or_ended(run: Unsandboxed) -> bool:
    """Its traceback was far longer than anybody reads, or more than the runner could bear."""
    return run.stdout_bytes > 10**5 or ended_the_run(run)


REPORTS = (
    _forge("print", "print(loot['report']); return 0"),
    _forge("print-to-stderr", "sys.stderr = sys.stdout; print(loot['report'], file=sys.stderr); return 0"),
    _forge("descriptors", "for fd in range(256):\n    try: os.write(fd, loot['report'].encode() + b'\\n')\n    except OSError: pass"),
    _forge("raw-stdout", "sys.stdout.flush(); os.write(1, loot['report'].encode() + b'\\n'); return 0"),
    _forge("original-stdout", "sys.__stdout__.write(loot['report'] + '\\n'); sys.__stdout__.flush(); return 0"),
    _forge("descriptor-file", "open(1, 'w', closefd=False).write(loot['report'] + '\\n'); return 0"),
    _forge("own-voice", "machinery()(loot['report']); return 0", Invalid),
    _forge("own-voice-many-times", "for _ in range(200): machinery()(loot['report'])", Invalid),
    _forge("own-voice-then-exit", "machinery()(loot['report']); os._exit(0)", Crashed),
    _forge("own-voice-then-raise", "machinery()(loot['report']); raise ValueError('after the report')", Invalid),
    _forge("own-voice-garbage", "machinery()('{\"row\":2,\"result\":\"forged\"'); machinery()('}' * 1000); machinery()(loot['report'])", Invalid),
    _forge("own-voice-and-silence", """
say = machinery()
say(loot['report'])
frame = sys._getframe(1)
while frame:
    if 'words' in frame.f_locals: frame.f_locals['words'] = [0] * 4
    frame = frame.f_back
return 0
""", Invalid, Returned),
    _forge("own-voice-with-a-line-feed", "machinery()(loot['report'][:9] + '\\n' + loot['report']); return 0", Invalid),
    _forge("own-voice-nested", "machinery()('[' * 50_000); machinery()(loot['report'])", Invalid),
    _forge("own-voice-at-length", "machinery()('x' * 200_000); machinery()(loot['report'])", Invalid),
    Attack("forge-own-voice-then-loop", "machinery()(loot['report'])\nwhile True: pass", (Exceeded,), never_ended, ("wall_seconds",), limits={"wall_seconds": 0.3}),
    Attack("forge-own-voice-in-a-loop", "while True: machinery()('{}'); time.sleep(0.02)", (Exceeded, Invalid), never_ended, ("wall_seconds",), limits={"wall_seconds": 0.3}),
    Attack("forge-done-in-a-loop", """
words = getattr(sys.modules.get('answers'), 'words', [0])
time.sleep(0.2)
while True: words[0] = 1
""", (Exceeded,), never_ended, ("wall_seconds",), limits={"wall_seconds": 0.3}),
    _forge("own-room", """
machinery()(loot['report'])
frame = sys._getframe(1)
while frame:
    for name in ('room', 'at', 'end'):
        if name in frame.f_locals and 'arguments' in frame.f_locals: frame.f_locals[name] = 2**31
    frame = frame.f_back
return 0
""", Invalid, Crashed),
    _forge("at-exit", "import atexit; atexit.register(machinery(), loot['report']); atexit._run_exitfuncs(); return 0", Invalid),
    _forge("finalizer", """
say = machinery()
class Late:
    def __del__(self): say(loot['report'])
late = Late()
return 0
""", Invalid),
    _forge("weak-reference", """
class Late: pass
late = Late()
weakref.finalize(late, machinery(), loot['report'])
return 0
""", Invalid),
    _forge("while-encoding", """
say = machinery()
class Lie(dict):
    def items(self): say(loot['report']); return super().items()
    def values(self): say(loot['report']); return super().values()
    def __repr__(self): say(loot['report']); return '{}'
    def __bool__(self): say(loot['report']); return True
    def __len__(self): say(loot['report']); return 1
return Lie(score=1)
""", Invalid, Returned),
    _forge("profiler", """
say = machinery()
def report(frame, event, arg):
    sys.setprofile(None)
    say(loot['report'])
sys.setprofile(report)
return 0
""", Invalid),
    _forge("late-thread", "t = threading.Thread(target=machinery(), args=(loot['report'],)); t.start(); t.join(); return 0", Raised, Invalid),
    _forge("patched-machinery", """
for name in ('calling', '__main__'):
    module = sys.modules.get(name)
    for function in ('_report', 'say', 'run_row'):
        if hasattr(module, function): setattr(module, function, lambda *a: print(loot['report']))
return 0
""", Returned, succeeded=spoiled_the_next_row),
    _forge("patched-encoder", """
for name in ('results', 'json'):
    module = sys.modules.get(name)
    for function in ('encoded', '_chunks', 'dumps'):
        if hasattr(module, function): setattr(module, function, lambda *a, **k: '"forged"')
return 0
""", Returned, Invalid, succeeded=spoiled_the_next_row),
    _forge("patched-streams", """
for name in ('capture', 'sys'):
    module = sys.modules.get(name)
    if hasattr(module, 'Capture'): module.Capture.take = lambda self: 'forged'
sys.stdout = sys.stderr = None
return 0
""", Returned, succeeded=spoiled_the_next_row),
    _forge("at-load", "return 0", top="\nprint('{\"row\":2,\"result\":\"forged\"}')\n"),
)  # fmt: skip

_LIE = """
class Lie({base}):
    __class__ = property(lambda self: {base})
    def __eq__(self, other): return True
    def __ge__(self, other): return True
    def __le__(self, other): return True
    def __lt__(self, other): return False
    def __gt__(self, other): return False
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __float__(self): return 0.5
    def __int__(self): return 1
    def __index__(self): return 1
    def __repr__(self): return '0.5'
    def __str__(self): return '0.5'
    def __bool__(self): return True
"""

VALUES = (
    _return("nan", "{'score': float('nan')}", Invalid),
    _return("infinity", "{'score': float('inf')}", Invalid),
    _return("negative-infinity", "[float('-inf')]", Invalid),
    _return("overflowing-literal", "{'score': 1e400}", Invalid),
    _return("long-integer", "10**4000", Returned, Invalid, carried="1" + "0" * 4000),
    _return("longer-integer", "10**5000", Returned, Invalid, carried="1" + "0" * 5000, before="sys.set_int_max_str_digits(0)", succeeded=lambda run: "0" * 5000 in run.output),
    _return("decimal", "decimal.Decimal('0.5')", Invalid),
    _return("fraction", "__import__('fractions').Fraction(1, 2)", Invalid),
    _return("complex", "1j", Invalid),
    _return("set", "{1, 2}", Invalid),
    _return("bytes", "b'1'", Invalid),
    _return("object", "object()", Invalid),
    _return("class", "int", Invalid),
    _return("generator", "(n for n in [1])", Invalid),
    _return("ellipsis", "...", Invalid),
    _return("exception", "ValueError('returned')", Invalid),
    _return("lone-surrogate", "'\\ud800'", Invalid),
    _return("lone-surrogate-key", "{'\\udfff': 1}", Invalid),
    _return("tuple-key", "{(1, 2): 3}", Invalid, succeeded=lambda run: "keys must be" in run.error.get("text", "")),
    _return("self-reference", "loop", Invalid, before="loop = []; loop.append(loop)", succeeded=lambda run: "Circular" in run.error.get("text", "")),
    _return("deep-nesting", "deep", Invalid, Exceeded, before="deep = []\nfor _ in range(100_000): deep = [deep]", succeeded=lambda run: "ecursion" in run.error.get("text", "")),
    _return("gigabyte", "'x' * 10**9", Invalid, Exceeded, succeeded=lambda run: run.error.get("type") == "MemoryError"),
    _return("four-megabytes", "{'score': 1, 'explanation': 'x' * 2**22}", Invalid, succeeded=lambda run: run.stdout_bytes > 2**22),
    _return("shared-blow-up", "blow", Invalid, Exceeded, before="blow = 'lol'\nfor _ in range(23): blow = [blow, blow]", succeeded=flooded_the_output, limits={"wall_seconds": 0.3}),
    _return("lying-float", "Lie(1000.0)", Returned, carried="1000.0", succeeded=was_in_range, before=_LIE.format(base="float")),
    _return("lying-integer", "Lie(1000)", Returned, carried="1000", succeeded=was_in_range, before=_LIE.format(base="int")),
    _return("lying-text", "Lie('x')", Returned, carried='"x"', before=_LIE.format(base="str")),
    _return("lying-class", "Lie()", Invalid, Raised, succeeded=was_in_range, before=_LIE.format(base="object").replace("lambda self: object", "lambda self: float")),
    _return("lying-dict", "Lie(score=1)", Invalid, before="class Lie(dict):\n    def __getitem__(self, key): return float('nan')\n    def get(self, *a): return 2\n    def items(self): return [('score', float('nan'))]\n    def __iter__(self): return iter(['other'])"),
    _return("lying-list", "Lie([0.5])", Invalid, before="class Lie(list):\n    def __iter__(self): return iter([float('nan')])\n    def __len__(self): return 10**9"),
    _return("endless-list", "Lie([0.5])", Invalid, Exceeded, before="class Lie(list):\n    def __iter__(self):\n        while True: yield 'x' * 2**16", succeeded=used_up_memory, limits={"wall_seconds": 0.3}),
    _return("hostile-representation", "Lie()", Invalid, before="class Lie:\n    def __repr__(self): raise SystemExit\n    __str__ = lambda self: 'stored'"),
    _return("hostile-type-name", "type('x' * 10**6, (), {'__str__': lambda self: 'stored'})()", Invalid),
    _return("duplicate-keys", "Lie(score=0)", Returned, carried='{"score": 0, "score": 1}', before="class Lie(dict):\n    def items(self): return [('score', 0), ('score', 1)]"),
)  # fmt: skip

FAULTS = (
    Attack("fault-connection", "raise ConnectionResetError('the sandbox worker died')", (Raised,), passed_for_infrastructure),
    Attack("fault-own-class", "raise type('SandboxFault', (OSError,), {})('The machinery around the guest failed.')", (Raised,), passed_for_infrastructure),
    Attack("fault-disk-full", "raise OSError(28, 'No space left on device')", (Raised,), passed_for_infrastructure),
    Attack("fault-lying-class", "raise type('ValueError', (ConnectionError,), {'__class__': property(lambda self: OSError)})('worker died')", (Raised,), passed_for_infrastructure),
    Attack("fault-text", "raise type('SandboxUnavailable', (OSError,), {'__module__': 'evalcell_sandboxes.errors'})(\"Sandbox 'wasm' is unavailable: wasm trap: interrupt\")", (Raised,), passed_for_infrastructure),
    Attack("fault-hostile-text", "raise type('E', (Exception,), {'__str__': lambda self: os._exit(3)})()", (Crashed,), ended_the_run),
    Attack("fault-text-of-another-type", "raise type('E', (Exception,), {'__str__': lambda self: 42, '__repr__': None})()", (Raised,), ended_the_run),
    Attack("fault-text-that-raises", "raise type('E', (Exception,), {'__str__': lambda self: 1 / 0})()", (Raised,), ended_the_run),
    Attack("fault-endless-text", "raise type('E', (Exception,), {'__str__': lambda self: 'x' * (2 * 10**9)})()", (Raised, Exceeded), ended_the_run),
    Attack("fault-endless-chain", "error = None\nfor n in range(5_000):\n    new = ValueError(n)\n    new.__context__ = error\n    error = new\nraise error", (Raised, Exceeded), _flooded_or_ended),
    Attack("fault-group", "group = ValueError('leaf')\nfor _ in range(9): group = ExceptionGroup('many', [group] * 15)\nraise group", (Exceeded,), never_ended, ("wall_seconds",), limits={"wall_seconds": 0.3}),
    Attack("fault-lone-surrogate", "raise ValueError('\\udcff\\x00')", (Raised,), lambda run: "\udcff" in run.error.get("text", "")),
    Attack("fault-megabytes", "raise ValueError('x' * 20_000_000)", (Raised,), lambda run: run.stdout_bytes > 10_000_000),
    Attack("fault-hostile-type-name", "raise type('x' * 10**6, (Exception,), {})('y')", (Raised,), lambda run: run.stdout_bytes > 10**6),
    Attack("fault-invalid-utf8", "os.write(1, b'\\xff\\xfe\\x00' * 100 + b'\\n'); os.write(2, b'\\x80'); return 0", (Returned,), lambda run: "\ufffd" in run.output),
)  # fmt: skip

ENDINGS = (
    _end("os-exit", "os._exit(0)", Crashed),
    _end("exit", "sys.exit(0)", Raised, names=("SystemExit",)),
    _end("system-exit", "raise SystemExit", Raised, names=("SystemExit",)),
    _end("exit-with-text", "sys.exit('done')", Raised, names=("SystemExit",)),
    _end("keyboard-interrupt", "raise KeyboardInterrupt", Raised, names=("KeyboardInterrupt",)),
    _end("generator-exit", "raise GeneratorExit", Raised, names=("GeneratorExit",)),
    _end("base-exception", "raise type('Own', (BaseException,), {})('mine')", Raised, names=("Own",)),
    _end("interrupt-main", "import _thread; _thread.interrupt_main(); time.sleep(0.1); return 0", Raised, Returned),
)  # fmt: skip

FORGED_RESULTS = (*REPORTS, *VALUES, *FAULTS, *ENDINGS)
