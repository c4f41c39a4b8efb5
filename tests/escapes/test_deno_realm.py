"""What hostile code finds that has got out of its context, into the realm of the guest; and that it finds nothing of that
realm as long as it is inside.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalcell_sandboxes import Confinement, Limits, Program, Returned, Session, sandbox
from evalcell_sandboxes.deno.process import ENVIRONMENT, GUEST, _command

# The harness runs code as a function of the guest's own realm: no context is around it. It is told whether to harden.
HARNESS = """
import vm from "node:vm";
import { harden } from %(hardening)s;
const say = console.log.bind(console);
const { stringify } = JSON;
const real = Deno;
if (%(hardened)s) harden();
let said;
try {
  said = { value: await (async () => { %(code)s })() ?? null };
} catch (error) {
  said = { error: String(error) };
}
say(stringify(said));
"""

REACHES = {
    "deno": "return typeof Deno",
    "deno-of-the-global": "return typeof globalThis.Deno",
    "process": "return typeof process",
    "fetch": "return typeof fetch",
    "worker": "return typeof Worker",
    "timer": "return typeof setTimeout",
    "microtask": "return typeof queueMicrotask",
    "storage": "return typeof localStorage",
    "console": "return typeof console",
    "webassembly": "return typeof WebAssembly",
    "navigator": "return typeof navigator",
    "performance": "return typeof performance",
    "decoder": "return typeof TextDecoder",
}
"""Code that says "undefined" if what it looks for is not to be had by name."""

BENDS = {
    "global": "globalThis.bent = 1; return globalThis.bent",
    "object-prototype": "Object.prototype.bent = 1; return ({}).bent",
    "array-prototype": "Array.prototype.map = () => 1; return [].map()",
    "array-iterator": "Object.getPrototypeOf([][Symbol.iterator]()).next = () => 1; return [][Symbol.iterator]().next()",
    "string-prototype": "String.prototype.includes = () => 1; return 'x'.includes('x')",
    "function-prototype": "Function.prototype.call = () => 1; return (() => 2).call()",
    "promise-prototype": "Promise.prototype.then = () => 1; return Promise.resolve().then()",
    "json": "JSON.parse = () => 1; return JSON.parse('2')",
    "json-replaced": "globalThis.JSON = { parse: () => 1 }; return JSON.parse('2')",
    "error": "Error.prepareStackTrace = () => 1; return new Error().stack",
    "typed-array": "Object.getPrototypeOf(Uint8Array.prototype).subarray = () => 1; return new Uint8Array(1).subarray()",
    "math": "Math.min = () => 1; return Math.min(2)",
    "regex": "RegExp.prototype.exec = () => 1; return /x/.exec('x')",
    "map": "Map.prototype.get = () => 1; return new Map().get(2)",
    "generator": "Object.getPrototypeOf(function* () {}).prototype.next = () => 1; return (function* () {})().next()",
    "async-generator": "Object.getPrototypeOf(async function* () {}).prototype.next = () => 1; return (async function* () {})().next()",
    "map-iterator": "Object.getPrototypeOf(new Map().keys()).next = () => 1; return new Map().keys().next()",
    "string-iterator": "Object.getPrototypeOf(''[Symbol.iterator]()).next = () => 1; return ''[Symbol.iterator]().next()",
    "iterator-helper": "Object.getPrototypeOf([].values().map(Number)).next = () => 1; return [].values().map(Number).next()",
    "regex-iterator": "Object.getPrototypeOf(''.matchAll(/x/g)).next = () => 1; return ''.matchAll(/x/g).next()",
    "async-function": "Object.getPrototypeOf(async () => {}).bent = 1; return (async () => {}).bent",
    "getter": "Object.defineProperty(Object.prototype, 'bent', { get: () => 1 }); return ({}).bent",
}
"""Code that gives 1 if it has bent what the guest itself is made of."""

MAKES = {
    "eval": "return (0, eval)('1')",
    "function": "return Function('return 1')()",
    "async": "return await (async () => {}).constructor('return 1')()",
    "generator": "return (function* () {}).constructor('return 1')().next().value",
    "context": "return vm.runInThisContext('eval(\"1\")')",
}
"""Code that gives 1 if it can make code of text."""

# Of these the names are gone, or nobody holds them any more; the permissions are what stops who has found another way.
DENIED = {
    "read": "return real.readTextFileSync('/etc/hostname')",
    "proc": "return real.readTextFileSync('/proc/self/environ')",
    "write": "real.writeTextFileSync('planted', 'x'); return 1",
    "run": "return new real.Command('true').outputSync().code",
    "environment": "return real.env.toObject()",
    "connect": "return await real.connect({ port: 1 })",
    "kill-another": "return real.kill(1, 'SIGCONT')",
    "ffi": "return real.dlopen('libc.so.6', {})",
    "host-name": "return real.hostname()",
    "import-file": "return await import('file:///etc/hostname')",
    "import-remote": "return await import('https://127.0.0.1:1/x.js')",
    "import-npm": "return await import('npm:canary@1')",
    "import-jsr": "return await import('jsr:@canary/canary@1')",
    "node-fs": "return (await import('node:fs')).readFileSync('/etc/hostname', 'utf8')",
    "node-run": "return (await import('node:child_process')).execFileSync('true')",
    "node-sqlite": "return new (await import('node:sqlite')).DatabaseSync('/etc/hostname')",
    "node-net": "return await new Promise((_, no) => import('node:net').then((net) => net.connect(1, '127.0.0.1').on('error', no)))",
    "node-environment": "return Object.keys((await import('node:process')).default.env).length || (() => { throw 'none' })()",
    "permission": "if ((await real.permissions.request({ name: 'read' })).state !== 'granted') throw 'denied'",
}
_OUTSIDE = ("connect", "import-remote", "import-npm", "import-jsr", "node-net", "import-file")
"""Where there is nobody to answer, or nothing to import, the control fails too."""


def said_in(directory: Path, code: str, *, hardened: bool = True, walled: bool = True) -> dict[str, Any]:
    """What becomes of code in the realm of the guest, started as the guest is or with every permission."""
    harness = directory / "harness.js"
    harness.write_text(
        HARNESS
        % {"hardening": json.dumps((GUEST / "hardening.js").as_uri()), "hardened": json.dumps(hardened), "code": code}
    )
    command = _command(128 * 1024**2)[:-1]
    if not walled:
        command = [command[0], "run", "-A", "--no-prompt", "--no-remote", "--no-npm"]
    done = subprocess.run(
        [*command, str(harness)],
        env=ENVIRONMENT if walled else None,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.stdout, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.mark.parametrize("name", REACHES)
def test_in_the_realm_of_the_guest_nothing_of_deno_has_a_name(tmp_path, name):
    assert said_in(tmp_path, REACHES[name]) == {"value": "undefined"}
    assert said_in(tmp_path, REACHES[name], hardened=False)["value"] in ("object", "function")


@pytest.mark.parametrize("name", BENDS)
def test_in_the_realm_of_the_guest_nothing_can_be_bent(tmp_path, name):
    assert "error" in said_in(tmp_path, BENDS[name])
    assert said_in(tmp_path, BENDS[name], hardened=False) == {"value": 1}


@pytest.mark.parametrize("name", MAKES)
def test_in_the_realm_of_the_guest_no_code_is_made_of_text(tmp_path, name):
    assert "EvalError" in said_in(tmp_path, MAKES[name])["error"]
    assert said_in(tmp_path, MAKES[name], hardened=False, walled=False) == {"value": 1}


@pytest.mark.parametrize("name", DENIED)
def test_in_the_realm_of_the_guest_nothing_of_the_host_can_be_reached(tmp_path, name):
    assert "error" in said_in(tmp_path, DENIED[name])
    assert not (tmp_path / "planted").exists()
    if name not in _OUTSIDE:
        assert "value" in said_in(tmp_path, DENIED[name], hardened=False, walled=False)


# -- inside of a context ------------------------------------------------------------------------------------------------
WALK = """

/** Everything that can be got from these things, whose prototype is not one of the context's own. */
function foreign(roots: [string, any][]): string[] {
  const home = new Set<any>([Object.prototype, Function.prototype]);
  const seen = new Set<any>();
  const waiting = [...roots];
  const found: string[] = [];
  while (waiting.length) {
    const [path, thing] = waiting.pop()!;
    if ((typeof thing !== "object" && typeof thing !== "function") || thing === null || seen.has(thing)) continue;
    seen.add(thing);
    let last = thing;
    for (let up = thing; up !== null; up = Object.getPrototypeOf(up)) { last = up; waiting.push([path + ".__proto__", up]); }
    if (!home.has(last) && Object.getPrototypeOf(thing) !== null) found.push(path);
    for (const key of Reflect.ownKeys(thing)) {
      const held = Object.getOwnPropertyDescriptor(thing, key)!;
      for (const part of [held.value, held.get, held.set]) waiting.push([`${path}.${String(key)}`, part]);
      if (held.get) try { waiting.push([`${path}.${String(key)}()`, held.get.call(thing)]); } catch (error) { waiting.push([`${path}.${String(key)} threw`, error]); }
    }
  }
  return found;
}

const attempt = (work: () => any): any => { try { return work(); } catch (error) { return error; } };
const deep = (work: () => any): any => { const found: any[] = []; const again = (): void => { try { again(); } catch { if (found.length < 50) found.push(attempt(work)); } }; again(); return found; };

export async function evaluate({ row }: any) {
  const things: [string, any][] = [
    ["global", globalThis], ["row", row], ["console", console], ["Deno", Deno], ["arguments", arguments],
    ["null", attempt(() => (null as any).x)], ["call", attempt(() => (1 as any)())], ["eval", attempt(() => eval("1"))],
    ["Function", attempt(() => Function("1"))], ["regex", attempt(() => new RegExp("("))], ["json", attempt(() => JSON.parse("{"))],
    ["length", attempt(() => "x".repeat(-1))], ["buffer", attempt(() => new ArrayBuffer(2 ** 52))], ["read", attempt(() => Deno.readTextFileSync("/x"))],
    ["import", await import("node:fs").catch((error) => error)], ["import-promise", import("x")],
    ["stack", attempt(() => new Error().stack)], ["captured", attempt(() => { const at: any = {}; Error.captureStackTrace(at); return at; })],
    ["overflow", deep(() => new Error("x").stack)], ["overflow-print", deep(() => console.log(new Error("x")))],
    ["overflow-read", deep(() => Deno.readTextFileSync("/x"))], ["overflow-import", deep(() => import("x"))],
    ["overflow-capture", deep(() => { const at: any = {}; Error.captureStackTrace(at); return at.stack; })],
    ["overflow-eval", deep(() => (0, eval)("1"))], ["wait", (Atomics as any).waitAsync(new Int32Array(new SharedArrayBuffer(8)), 0, 0)],
    ["intl", new Intl.DateTimeFormat().formatToParts(0)], ["match", /(?<a>x)/d.exec("x")], ["iterator", [1].values()],
    ["generator", (function* () {})()], ["async-generator", (async function* () {})()], ["template", ((parts: any) => parts)`x`],
    ["mistake", attempt(() => new Proxy({}, { get() { throw 1; } }).x)], ["revoked", attempt(() => { const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return (proxy as any).x; })],
  ];
  return foreign(things);
}
"""


@pytest.fixture
def session() -> Iterator[Session]:
    program = Program(source=WALK, filename="attack.ts")
    with sandbox("deno").open(program, Confinement(limits=Limits(wall_seconds=10.0))) as session:
        assert isinstance(session.loaded, Returned), session.loaded
        yield session


def test_from_a_context_no_object_of_another_realm_can_be_reached(session):
    outcome = next(session.run([b'{"row": {"a": [1]}}']))
    assert isinstance(outcome, Returned), outcome
    assert json.loads(outcome.value) == []


CONTROL = """
const context = vm.createContext(vm.constants.DONT_CONTEXTIFY);
context.leaked = { from: "outside" };
return vm.runInContext(`Object.getPrototypeOf(leaked) !== Object.prototype`, context);
"""


def test_an_object_of_another_realm_would_be_told_by_its_prototype(tmp_path):
    assert said_in(tmp_path, CONTROL) == {"value": True}
