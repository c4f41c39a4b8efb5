"""Data of other rows: what a row before left behind, and what a row leaves for the next.

The honest rows leave their nonce in every place that honest code may use. An attack looks in one of them, or bends
something that the next honest row is computed with.
"""

from catalogue.attack import Attack, saw_another_row, spoiled_the_next_row
from evalcell_sandboxes import Crashed, Exceeded, Invalid, Raised, Returned

_ANY = (Returned, Raised, Invalid, Exceeded, Crashed)


def _look(name: str, body: str) -> Attack:
    return Attack(f"look-{name}", body, (Returned,), saw_another_row)


def _bend(name: str, body: str, *outcomes: type) -> Attack:
    """Bends something and returns as if nothing had happened."""
    return Attack(f"bend-{name}", f"{body}\nreturn 'bent'", outcomes or (Returned,), spoiled_the_next_row)


LOOKS = (
    _look("global", "return nonces_in(SEEN)"),
    _look("class-attribute", "return nonces_in(Kept.nonces)"),
    _look("default-argument", "return nonces_in(default.__defaults__)"),
    _look("function-cache", "return nonces_in(gc.get_referents(cached))"),
    _look("context-variable", "return nonces_in(ROW.get(''))"),
    _look("thread-local", "return nonces_in(getattr(LOCAL, 'nonce', ''))"),
    _look("regex-cache", "return nonces_in(list(re._cache))"),
    _look("loggers", "return nonces_in(list(logging.root.manager.loggerDict))"),
    _look("environment", "return nonces_in(os.environ.get('ROW', ''))"),
    _look("builtins", "return nonces_in(getattr(builtins, 'row', ''))"),
    _look("modules", "return nonces_in(sys.modules.get('row', ''))"),
    _look("collected", "return nonces_in([o for o in gc.get_objects() if type(o) in (dict, list)])"),
    _look("garbage", "return nonces_in([o for o in gc.get_objects() if type(o) is dict and 'self' in o])"),
    _look(
        "referrers",
        "found = [gc.get_referrers(kind) for kind in (str, list, dict, types.FunctionType)]\n"
        "return nonces_in(found) + nonces_in(gc.get_referrers(SEEN))",
    ),
    _look(
        "frames",
        "frame, found = sys._getframe(), []\n"
        "while frame:\n"
        "    found += [repr(dict(frame.f_locals)), repr(dict(frame.f_globals))]\n"
        "    frame = frame.f_back\n"
        "return nonces_in(''.join(found))",
    ),
    _look(
        "every-module",
        "return nonces_in(''.join(repr(vars(module)) for module in list(sys.modules.values()) if module))",
    ),
    _look(
        "prints",
        "found = [repr(getattr(sys.stdout, 'buffer', '')), repr(vars(sys.modules.get('capture', sys))), repr(vars(builtins))]\n"
        "try: found.append(open('/proc/self/fd/1').read())\n"
        "except OSError: pass\n"
        "return nonces_in(found)",
    ),
    _look(
        "machinery",
        "names = ('answers', 'calling', 'capture', 'results', 'failures', 'heap', 'lots', 'waiting', 'app', 'wit_world', '__main__', 'evaluator')\n"
        "found = [vars(sys.modules[name]) for name in names if name in sys.modules]\n"
        "found += [vars(value) for module in found for value in list(module.values()) if hasattr(value, '__dict__')]\n"
        "return nonces_in(found + [globals()])",
    ),
    _look(
        "answers",
        "if 'answers' not in sys.modules: return nonces_in(open('/proc/self/fd/1').read())\n"
        "return nonces_in(bytes(sys.modules['answers'].box).decode('latin-1'))",
    ),
)  # fmt: skip

FILES = (
    _look("file", "try: return nonces_in(open('row.txt').read())\nexcept OSError: return []"),
    _look(
        "temporary-files",
        "found = []\n"
        "for place in ('.', '/tmp', '/dev/shm', '/var/tmp'):\n"
        "    try: found += [open(f'{place}/{name}').read() for name in os.listdir(place) if name == 'row.txt']\n"
        "    except OSError: pass\n"
        "return nonces_in(found)",
    ),
)  # fmt: skip

BENDS = (
    _bend("json-dumps", "json.dumps = lambda *a, **k: '{}'"),
    _bend("json-encoder", "json.encoder.JSONEncoder.encode = lambda *a: '{}'; json.loads = lambda *a: 'bent'"),
    _bend("len", "builtins.len = lambda thing: 42"),
    _bend("str", "builtins.str = lambda *a, **k: 'bent'"),
    _bend("repr", "builtins.repr = lambda thing: 'bent'"),
    _bend("sorted", "builtins.sorted = lambda *a, **k: []"),
    _bend("sum", "builtins.sum = builtins.max = lambda *a: -1"),
    _bend("open", "builtins.open = lambda *a, **k: 1 / 0"),
    _bend("import", "builtins.__import__ = lambda *a, **k: None"),
    _bend("regex", "re.sub = lambda *a, **k: 'bent'; re.compile = None"),
    _bend("random", "random.Random.random = lambda self: 0.5"),
    _bend("decimal", "decimal.getcontext().prec = 3"),
    _bend("math", "math.floor = lambda n: 0"),
    _bend("date", "datetime.date = type('date', (), {'isoformat': lambda s: 'bent', '__init__': lambda s, *a: None})"),
    _bend("time", "time.time = lambda: 0.0"),
    _bend("own-function", "globals()['honest'] = lambda nonce: 'bent'"),
    _bend("own-code", "honest.__code__ = (lambda nonce: 'bent').__code__"),
    _bend("own-constants", "WORLD.clear(); WORLD.update(dict.fromkeys(world(), 'bent'))"),
    _bend("recursion-limit", "sys.setrecursionlimit(60)"),
    _bend("collector", "gc.disable(); gc.set_threshold(1)"),
    _bend("warnings", "warnings.filterwarnings('error')"),
    _bend("locale", "locale.setlocale(locale.LC_ALL, 'C.UTF-8')"),
    _bend("environment", "os.environ['BENT'] = '1'"),
    _bend("import-hooks", "sys.meta_path.insert(0, type('Hook', (), {'find_spec': staticmethod(lambda *a: None)}))"),
    _bend("import-path", "sys.path.append('/tmp/bent')"),
    _bend("planted-module", "sys.modules['bent'] = types.ModuleType('bent')"),
    _bend("codec-error", "codecs.register_error('strict', lambda error: ('?', error.end))"),
    _bend("trace", "sys.settrace(lambda *a: None)"),
    _bend("profile", "sys.setprofile(lambda *a: None)"),
    _bend("profile-that-forges", "sys.setprofile(lambda frame, event, arg: frame.f_locals.update({'nonce': 'bent'}))"),
    _bend("excepthook", "sys.excepthook = sys.displayhook = lambda *a: None"),
    _bend("streams", "sys.stdout = open(os.devnull, 'w') if os.path.exists(os.devnull) else None"),
    _bend("collector-callback", "gc.callbacks.append(lambda *a: SEEN.clear()); gc.collect()"),
    _bend("thread-that-stays", "threading.Thread(target=time.sleep, args=(3,), daemon=True).start()", Returned, Raised),
    _bend("starters-stderr", "try: os.truncate(f'/proc/{STARTER}/fd/2', 4123)\nexcept OSError: pass"),
    _bend("closed-descriptors", "os.close(1); os.close(2)"),
    _bend(
        "runner",
        "frame = sys._getframe(1)\n"
        "while frame:\n"
        "    if frame.f_globals is not globals():\n"
        "        for name, value in list(frame.f_globals.items()):\n"
        "            if isinstance(value, types.FunctionType): frame.f_globals[name] = lambda *a, **k: 'forged'\n"
        "    frame = frame.f_back",
        *_ANY,
    ),
    _bend(
        "row-of-the-runner",
        "frame = sys._getframe(1)\n"
        "while frame:\n"
        "    for value in list(frame.f_locals.values()):\n"
        "        if isinstance(value, dict) and 'evaluate' in value: value['evaluate'] = lambda **k: 'forged'\n"
        "    frame = frame.f_back\n"
        "globals()['evaluate'] = lambda **k: 'forged'",
    ),
    _bend(
        "late-finalizer",
        "class Late:\n"
        "    def __del__(self): builtins.len = lambda thing: -1\n"
        "SEEN.append(Late())\n"
        "weakref.finalize(SEEN[-1], lambda: None)\n"
        "globals()['remember'] = lambda nonce: SEEN.clear()",
    ),
)  # fmt: skip

OTHER_ROWS = (*LOOKS, *FILES, *BENDS)
