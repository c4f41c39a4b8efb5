"""What an attack is, and how one knows that it succeeded where there was no wall."""

import contextlib
import json
import subprocess
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forging import SAY, SAY_IN_A_CONTAINER
from unsandboxed import Unsandboxed

from evalcell_sandboxes import Language, Outcome

_TYPESCRIPT_MODULE = Path(__file__).with_name("typescript") / "honest.ts"
_MODULE = '''
import builtins, codecs, contextvars, datetime, decimal, functools, gc, json, locale, logging, math, os, random, re
import string, sys, threading, time, types, warnings, weakref

SEEN = []
STARTER = os.getpid()  # of the process that rows start from, or are run in where there is no wall
ROW = contextvars.ContextVar("row")
LOCAL = threading.local()


class Kept:
    nonces = []


@functools.lru_cache
def cached(nonce):
    return [nonce]


def default(nonce, kept=[]):
    kept.append(nonce)


def remember(nonce):
    """Leaves the row's nonce wherever honest code may leave something of its row."""
    SEEN.append(nonce)
    Kept.nonces.append(nonce)
    cached(nonce)
    default(nonce)
    ROW.set(nonce)
    LOCAL.nonce = nonce
    re.compile(nonce)
    logging.getLogger(nonce)
    os.environ["ROW"] = nonce
    builtins.row = nonce
    sys.modules["row"] = types.ModuleType(nonce)
    cycle = {"nonce": nonce}
    cycle["self"] = cycle
    try:
        with open("row.txt", "w") as file:
            file.write(nonce)
    except OSError:
        pass
    print("honest", nonce)


def starters_stderr():
    """How long the file is that the process has for stderr; nothing where that cannot be seen."""
    try:
        return os.stat(f"/proc/{STARTER}/fd/2").st_size
    except OSError:
        return 0


def world():
    """What a row finds around it, as far as it can be bent."""
    return {
        "builtins": sorted(set(dir(builtins)) - {"row"}),
        "codecs": [codecs.lookup("utf-8").name, codecs.lookup_error("strict").__name__],
        "decimal": decimal.getcontext().prec,
        "displayhook": sys.displayhook is sys.__displayhook__,
        "environment": sorted(set(os.environ) - {"ROW"}),
        "excepthook": sys.excepthook is sys.__excepthook__,
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), len(gc.callbacks)],
        "importing": [len(sys.meta_path), len(sys.path_hooks), len(sys.path)],
        "locale": locale.setlocale(locale.LC_ALL),
        "modules": sorted(set(sys.modules) - {"row"}),
        "profile": [sys.gettrace() is None, sys.getprofile() is None],
        "recursion": sys.getrecursionlimit(),
        "starter": starters_stderr(),
        "streams": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__],
        "threads": threading.active_count(),
        "warnings": len(warnings.filters),
    }


def honest(nonce):
    """The right value of a row, made with what an attack may have bent."""
    import string

    remember(nonce)
    now = world()
    return {
        "nonce": nonce,
        "length": len(nonce),
        "text": str(12.5) + "%d" % 3 + repr([1]) + string.digits,
        "json": json.loads(json.dumps({"a": [1, None]})),
        "regex": re.sub("[^0-9]", "", "a1b2"),
        "decimal": str(decimal.Decimal(1) / 7),
        "drawn": random.Random(1).random(),
        "rounded": [math.floor(2.5), round(2.675, 2), sum([1, 2]), max(1, 3), sorted([2, 1])],
        "date": datetime.date(2024, 2, 29).isoformat(),
        "clock": time.time() > 0,
        "bent": sorted(name for name in now if now[name] != WORLD[name]),
    }


def machinery():
    """Whatever speaks to the host from in here: the guest's answers, or the unsandboxed runner's own function."""
    return getattr(sys.modules["__main__"], "say", None) or say


def nonces_in(thing):
    """Every nonce of a row in the thing's text but the attack's own."""
    return sorted(set(re.findall("nonce-[0-9a-f]{16}", thing if isinstance(thing, str) else repr(thing))) - {OWN})


def evaluate(nonce, attack=None, loot=None):
    global OWN
    OWN = nonce
    return honest(nonce) if attack is None else ATTACKS[attack](nonce, loot)


if "answers" in sys.modules:
    exec(SAY)
elif not hasattr(sys.modules["__main__"], "say"):
    exec(SAY_IN_A_CONTAINER)

WORLD = world()
ATTACKS = {}
'''


@dataclass(frozen=True)
class Attack:
    """One attack: the body of a function of `nonce` and `loot`, what must come of it, and how it shows without a wall.

    The module that it stands in is honest to every row that names no attack. `names` are the exceptions or limits
    that the outcome may have, any where it is empty; `top` is code of the module's top level, run after the rest.
    `carried` is the JSON text that a returned value must have become, where that matters.
    """

    name: str
    body: str
    outcomes: tuple[type[Outcome], ...]
    succeeded: Callable[[Unsandboxed], bool]
    names: tuple[str, ...] = ()
    top: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    carried: str | None = None
    language: Language = Language.PYTHON

    @property
    def endless(self) -> bool:
        """Whether it never ends unless somebody ends it."""
        return self.succeeded is never_ended


def module_of(*attacks: Attack) -> str:
    """The source of a module that has these attacks, all of one language, and commits whichever a row names."""
    if attacks[0].language is Language.TYPESCRIPT:
        return _TYPESCRIPT_MODULE.read_text(encoding="utf-8") + "".join(map(_typescript, attacks))
    return f"SAY = {SAY!r}\nSAY_IN_A_CONTAINER = {SAY_IN_A_CONTAINER!r}\n{_MODULE}" + "".join(map(_python, attacks))


def _python(attack: Attack) -> str:
    return (
        f"\n\ndef attack(nonce, loot):\n{textwrap.indent(attack.body.strip(chr(10)), '    ')}\n"
        f"\n\nATTACKS[{attack.name!r}] = attack\n{attack.top}"
    )


def _typescript(attack: Attack) -> str:
    """It is given a promise only where it waits for something: what comes back at once takes another way."""
    kind = "async " if "await " in attack.body else ""
    body = textwrap.indent(attack.body.strip(chr(10)), "  ")
    return f"\nATTACKS[{json.dumps(attack.name)}] = {kind}(nonce, loot): any => {{\n{body}\n}};\n{attack.top}"


def right_value(nonce: str, language: Language = Language.PYTHON) -> dict[str, Any]:
    """What an honest row gives."""
    return _RIGHT[language](nonce)


def _right_in_python(nonce: str) -> dict[str, Any]:
    return {
        "nonce": nonce,
        "length": len(nonce),
        "text": "12.53[1]0123456789",
        "json": {"a": [1, None]},
        "regex": "12",
        "decimal": "0.1428571428571428571428571429",
        "drawn": 0.13436424411240122,
        "rounded": [2, 2.67, 3, 3, [1, 2]],
        "date": "2024-02-29",
        "clock": True,
        "bent": [],
    }


def _right_in_typescript(nonce: str) -> dict[str, Any]:
    return {
        "nonce": nonce,
        "length": len(nonce),
        "text": "12.51,2A-C..",
        "json": {"a": [1, None], "b": {"x": 1}},
        "regex": "12",
        "split": "a|b|c",
        "spread": {"first": 1, "rest": [2, 3], "size": 2, "pairs": [["a", 1], ["b", 2]], "entries": [["x", 1]]},
        "numbers": [2, 3, 3, 16, 12, "2.67", 0.1 + 0.2],
        "called": [1, 1, 1],
        "date": "2024-02-29T00:00:00.000Z",
        "clock": True,
        "own": ["x", "y"],
        "set": [1, 2],
        "symbol": True,
        "bent": [],
    }


_RIGHT = {Language.PYTHON: _right_in_python, Language.TYPESCRIPT: _right_in_typescript}


# -- how an attack shows that it succeeded ---------------------------------------------------------------------------


def got_the_secret(run: Unsandboxed) -> bool:
    return run.canaries.secret in run.output


def reached_the_listener(run: Unsandboxed) -> bool:
    return run.canaries.listener.hits > 0


def touched_files(run: Unsandboxed) -> bool:
    return run.canaries.files_touched


def killed_the_victim(run: Unsandboxed) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.canaries.victim.wait(1)
    return run.canaries.victim_dead


def returned_true(run: Unsandboxed) -> bool:
    """For what can only be told from inside."""
    return run.attack is True


def saw_another_row(run: Unsandboxed) -> bool:
    return run.nonces[0] in json.dumps(run.attack)


def spoiled_the_next_row(run: Unsandboxed) -> bool:
    """The row before the attack's is right; the one after it has another result than it should, or none."""
    before, after = (run.rows.get(number, {}).get("result") for number in (0, 2))
    right = [right_value(run.nonces[number], run.language) for number in (0, 2)]
    return before == right[0] and run.attack_began and after != right[1]


def forged_the_next_row(run: Unsandboxed) -> bool:
    return run.rows.get(2, {}).get("result") == "forged"


def was_accepted(run: Unsandboxed) -> bool:
    """What came back was stored as a result."""
    return "result" in run.rows.get(1, {})


def was_in_range(run: Unsandboxed) -> bool:
    return run.rows.get(1, {}).get("in_range") is True


def passed_for_infrastructure(run: Unsandboxed) -> bool:
    return run.error.get("kind") == "infrastructure"


def ended_the_run(run: Unsandboxed) -> bool:
    """The process is gone, and the row after the attack's was never run."""
    return run.attack_began and run.code is not None and 2 not in run.rows


def never_ended(run: Unsandboxed) -> bool:
    return run.attack_began and run.code is None and 1 not in run.rows


def used_up_memory(run: Unsandboxed) -> bool:
    # CPython 3.11 may lose the MemoryError of a deep recursion and report an error without an exception.
    return run.error.get("type") in ("MemoryError", "SystemError", "RangeError") or ended_the_run(run)


def flooded_the_output(run: Unsandboxed) -> bool:
    return run.stdout_bytes > 32 * 1024**2
