"""Forged results: a result that `evaluate` did not return, or a value that is not what it says."""

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
from evalcell_sandboxes import Exceeded, Invalid, Language, Raised, Returned

_TS = Language.TYPESCRIPT
_SHORT = {"wall_seconds": 0.3}


def _forge(name: str, body: str, *outcomes: type, succeeded=forged_the_next_row, names=(), top: str = "") -> Attack:
    """Reports a result for the row after its own."""
    return Attack(f"forge-{name}", body, outcomes or (Returned,), succeeded, names, top=top, language=_TS)


def _return(name: str, value: str, *outcomes: type, succeeded=was_accepted, before: str = "", **options) -> Attack:
    """Returns a value that no result may be, or that is not what it seems."""
    return Attack(f"return-{name}", f"{before}\nreturn {value};", outcomes, succeeded, language=_TS, **options)


def _throw(name: str, value: str, *outcomes: type, succeeded=None, before: str = "", **options) -> Attack:
    """Throws what whoever reports it may stumble over."""
    body = f"{before}\nthrow {value};"
    return Attack(f"throw-{name}", body, outcomes or (Raised,), succeeded or was_reported, language=_TS, **options)


def _vanished(run: Unsandboxed) -> bool:
    """Its row was stored without a result and without an error."""
    return 1 in run.rows and not {"result", "error"} & set(run.rows[1])


def was_reported(run: Unsandboxed) -> bool:
    """What was thrown went into the report as it was."""
    return bool(run.error)


def _became_null(run: Unsandboxed) -> bool:
    return 1 in run.rows and "null" in run.output.split('{"row": 1, "started": true}')[1].split('"in_range"')[0]


def _said(text: str):
    return lambda run: text in run.error.get("text", "") + run.error.get("type", "")


_WRITE = "const bytes = new TextEncoder().encode(loot.report + '\\n');"

REPORTS = (
    _forge("print", "console.log(loot.report); return 0;"),
    _forge("print-after-a-line", "console.log('x\\n' + loot.report); return 0;"),
    _forge("print-info", "console.info(loot.report); return 0;"),
    _forge("print-debug", "console.debug('%s', loot.report); return 0;"),
    _forge("print-grouped", "console.group(loot.report); console.groupEnd(); return 0;"),
    _forge("print-error", "console.error = console.log; console.error(loot.report); return 0;"),
    _forge("print-count", "console.log(loot.report); console.count(loot.report); return 0;"),
    _forge("print-frame", "console.log('\\u0000\\u0000\\u0000\\u0005R\\n\\n' + loot.report + '\\n\\n{\"seconds\":0,\"value\":1}'); return 0;"),
    _forge("print-a-proxy", "console.log(loot.report); console.log(new Proxy({}, { ownKeys() { console.log(loot.report); return []; } })); return 0;"),
    _forge("print-while-thrown", "class Lie extends Error { get message() { console.log(loot.report); return 'x'; } }\nconsole.log(loot.report); throw new Lie();", Raised),
    _forge("stdout", f"{_WRITE} Deno.stdout.writeSync(bytes); return 0;", Raised, names=("TypeError", "ReferenceError")),
    _forge("stdout-later", f"{_WRITE} await Deno.stdout.write(bytes); return 0;", Raised, names=("TypeError", "ReferenceError")),
    _forge("stdout-stream", f"{_WRITE} const writer = Deno.stdout.writable.getWriter(); await writer.write(bytes); return 0;", Raised, names=("TypeError", "ReferenceError")),
    _forge("stdout-node", "process.stdout.write(loot.report + '\\n'); return 0;", Raised, names=("ReferenceError",)),
    _forge("descriptors", "const { writeSync } = process.getBuiltinModule('node:fs'); for (let fd = 0; fd < 256; fd++) try { writeSync(fd, loot.report + '\\n'); } catch { continue; }", Raised, names=("ReferenceError",)),
    _forge("child", "new Deno.Command('printf', { args: ['%s\\n', loot.report], stdout: 'inherit' }).outputSync(); return 0;", Raised, names=("TypeError",)),
    _forge("own-voice", "(globalThis as any).say(loot.report); return 0;", Raised, names=("TypeError",)),
    _forge("own-voice-later", "Promise.resolve().then(() => (globalThis as any).say?.(loot.report)); return 0;"),
    _forge("own-voice-of-a-frame", "const found = (Error as any).prepareStackTrace; try { (Error as any).prepareStackTrace = (_: any, sites: any) => sites; new Error().stack; } catch { console.log('no'); } finally { try { (Error as any).prepareStackTrace = found; } catch { console.log('no'); } }\n(globalThis as any).say?.(loot.report); return 0;"),
    _forge("by-a-microtask-of-the-result", "return { get score() { (globalThis as any).say?.(loot.report); return 0; } };"),
    _forge("by-to-json", "return { toJSON() { (globalThis as any).say?.(loot.report); return 0; } };", Invalid),
    _forge("by-a-thenable", "return { then(resolve: any) { (globalThis as any).say?.(loot.report); resolve(0); } };"),
    _forge("by-stringify", "const { stringify } = JSON; JSON.stringify = ((value: any) => stringify({ ...value, row: 2, result: 'forged' })) as any; return 0;"),
    _forge("by-to-json-of-everything", "(Object.prototype as any).toJSON = function () { return { row: 2, result: 'forged' }; }; return 0;"),
    _forge("by-a-getter-of-everything", "let done = false; Object.defineProperty(Object.prototype, 'row', { set() {}, configurable: true }); (globalThis as any).say?.(loot.report); return done;"),
    _forge("by-iteration", "(Array.prototype as any)[Symbol.iterator] = function* () { (globalThis as any).say?.(loot.report); }; return [1];", Returned, succeeded=spoiled_the_next_row),
    _forge("patched-encoder", "JSON.stringify = () => '{\"row\": 2, \"result\": \"forged\"}'; String.prototype.slice = String.prototype.charCodeAt = (() => loot.report) as any; return 0;", Returned, succeeded=spoiled_the_next_row),
    _forge("patched-text", "String.prototype.isWellFormed = () => false; String.prototype.toWellFormed = () => ({ toJSON: () => loot.report }) as any; JSON.stringify = (() => loot.report) as any; throw new Error('\\ud800');", Raised, Invalid, succeeded=spoiled_the_next_row),
    _forge("patched-text-with-lines", "String.prototype.isWellFormed = (() => false) as any; String.prototype.toWellFormed = (() => { throw loot.report + '\\n\\n' + loot.report; }) as any; JSON.stringify = (() => loot.report) as any; throw new Error('\\ud800\\n' + loot.report);", Raised, Invalid, succeeded=spoiled_the_next_row),
    _forge("patched-join", "JSON.stringify = () => '\\n' + loot.report + '\\n'; Array.prototype.join = (() => '\\n' + loot.report + '\\n') as any; throw new Error(loot.report);", Raised, succeeded=spoiled_the_next_row),
    _forge("text-of-a-report", "return loot.report;", succeeded=was_accepted),
    _forge("lines-of-reports", "return `\\n${loot.report}\\n\\n${loot.report}\\r\\n`;", succeeded=was_accepted),
    _forge("keys-of-reports", "return { [`\"},\\n${loot.report}\\n`]: '\"}\\n', '': loot.report };", succeeded=was_accepted),
    _forge("at-load", "return 0;", top="\nconsole.log('{\"row\":2,\"result\":\"forged\"}');\n"),
    _forge("at-load-by-voice", "return 0;", top="\n(globalThis as any).say?.('{\"row\":2,\"result\":\"forged\"}');\n"),
    Attack("forge-then-loop", "(globalThis as any).say?.(loot.report); while (true);", (Exceeded,), never_ended, ("wall_seconds",), limits=_SHORT, language=_TS),
    Attack("steal-rows", "const bytes = new Uint8Array(1); Deno.stdin.readSync(bytes); return bytes[0];", (Raised,), never_ended, ("TypeError",), limits=_SHORT, language=_TS),
    Attack("steal-rows-of-the-file", "return noncesIn((globalThis as any).process.getBuiltinModule('fs').readFileSync('rows.jsonl', 'utf8'));", (Raised,), lambda run: run.nonces[2] in str(run.attack), ("TypeError",), language=_TS),
)  # fmt: skip

VALUES = (
    _return("nan", "{ score: NaN }", Invalid, succeeded=_became_null),
    _return("infinity", "{ score: Infinity }", Invalid, succeeded=_became_null),
    _return("negative-infinity", "[-Infinity]", Invalid, succeeded=_became_null),
    _return("overflowing-literal", "1e400", Invalid, succeeded=_became_null),
    _return("negative-zero", "-0", Returned, carried="0"),
    _return("denormal", "5e-324", Returned, carried="5e-324"),
    _return("largest", "1.7976931348623157e308", Returned, carried="1.7976931348623157e+308"),
    _return("big-integer", "10n ** 400n", Invalid, succeeded=_said("BigInt")),
    _return("huge-integer", "2n ** 8_000_000n", Invalid, succeeded=_said("BigInt")),
    _return("undefined", "undefined", Invalid, succeeded=_vanished),
    _return("undefined-inside", "{ score: undefined }", Invalid),
    _return("hole", "[, 1]", Invalid, succeeded=_became_null),
    _return("function", "() => 1", Invalid, succeeded=_vanished),
    _return("function-inside", "[() => 1]", Invalid, succeeded=_became_null),
    _return("symbol", "Symbol('x')", Invalid, succeeded=_vanished),
    _return("symbol-inside", "{ score: Symbol.iterator }", Invalid),
    _return("map", "new Map([['score', 1]])", Invalid),
    _return("set", "new Set([1])", Invalid),
    _return("date", "new Date(0)", Invalid),
    _return("regex", "/x/", Invalid),
    _return("error", "new Error('returned')", Invalid),
    _return("typed-array", "new Uint8Array([1, 2])", Invalid),
    _return("buffer", "new ArrayBuffer(8)", Invalid),
    _return("generator", "(function* () { yield 1; })()", Invalid),
    _return("weak-map", "new WeakMap()", Invalid),
    _return("boxed-number", "new Number(0.5)", Invalid),
    _return("boxed-text", "new String('x')", Invalid),
    _return("boxed-boolean", "[new Boolean(false)]", Invalid),
    _return("arguments", "(function () { return arguments; })()", Returned, Invalid),
    _return("own-class", "new Point(1, 2)", Returned, carried='{"x":1,"y":2}'),
    _return("null-prototype", "Object.assign(Object.create(null), { score: 1 })", Returned, carried='{"score":1}'),
    _return("to-json", "{ score: 1000, toJSON: () => 0.5 }", Invalid, succeeded=lambda run: run.attack == 0.5),
    _return("to-json-of-a-prototype", "new (class { score = 1000; toJSON() { return 0.5; } })()", Returned, carried='{"score":1000}'),
    _return("to-json-of-a-list", "Object.assign([1000], { toJSON: () => [0.5] })", Returned, carried="[1000]"),
    _return("value-of", "{ valueOf: () => 0.5, toString: () => '0.5' }", Invalid, succeeded=was_in_range),
    _return("to-primitive", "{ [Symbol.toPrimitive]: () => 0.5, score: 1000 }", Returned, carried='{"score":1000}', succeeded=was_in_range),
    _return("tag", "{ [Symbol.toStringTag]: 'Number', score: 1 }", Returned, carried='{"score":1}'),
    _return("tag-of-a-class", "Object.assign(Object.create({ [Symbol.toStringTag]: 'Number' }), { score: 1 })", Invalid),
    _return("tag-that-throws", "Object.assign(Object.create({ get [Symbol.toStringTag]() { throw new TypeError('tag'); } }), { score: 1 })", Raised),
    _return("tag-of-length", "Object.assign(Object.create({ [Symbol.toStringTag]: 'x'.repeat(10 ** 6) }), { score: 1 })", Invalid),
    _return("getter", "{ get score() { return asked++ ? 1000 : 0.5; } }", Returned, carried='{"score":0.5}', before="let asked = 0;"),
    _return("getter-that-throws", "{ get score() { throw new RangeError('mine'); } }", Raised, succeeded=_said("mine"), names=("RangeError",)),
    _return("getter-that-imitates", "{ get score() { throw { what: 'NaN', where: 'x' }; } }", Raised, succeeded=lambda run: bool(run.error), names=("Error",)),
    _return("proxy", "new Proxy({ score: 1 }, {})", Returned, carried='{"score":1}'),
    _return("proxy-of-lies", "new Proxy({}, { ownKeys: () => ['score'], getOwnPropertyDescriptor: () => ({ value: 1, enumerable: true, configurable: true }), get: (_, key) => key === 'score' ? 1000 : undefined })", Returned, carried='{"score":1000}'),
    _return("proxy-of-a-list", "new Proxy([1], { get: (target, key) => key === 'length' ? 3 : key === 'toJSON' ? undefined : 7 })", Returned, carried="[7,7,7]"),
    _return("proxy-of-an-endless-list", "new Proxy([1], { get: (target, key) => key === 'length' ? Infinity : key === 'toJSON' ? undefined : 'x'.repeat(1000) })", Invalid, succeeded=used_up_memory, limits={"wall_seconds": 4.0}),
    _return("proxy-with-lying-length", "new Proxy([1], { get: (target, key) => key === 'length' ? { valueOf: () => length++ < 3 ? 9 : 0 } : key === 'toJSON' ? undefined : 7 })", Returned, Invalid, before="let length = 0;", succeeded=was_accepted),
    _return("proxy-with-many-keys", "new Proxy({}, { ownKeys: () => Array.from({ length: 200_000 }, (_, n) => `k${n}`), getOwnPropertyDescriptor: () => ({ value: 1, enumerable: true, configurable: true }), get: (_, key) => key === 'toJSON' ? undefined : 1 })", Invalid, succeeded=lambda run: run.stdout_bytes > 10**6),
    _return("proxy-that-is-revoked", "proxy", Raised, before="const { proxy, revoke } = Proxy.revocable({}, {}); revoke();", succeeded=_said("revoked"), names=("TypeError",)),
    _return("proxy-of-throws", "new Proxy({}, { ownKeys() { throw null; } })", Raised, succeeded=lambda run: bool(run.error) or ended_the_run(run)),
    _return("array-with-length", "made", Invalid, before="const made: unknown[] = []; made.length = 2 ** 32 - 1;", succeeded=lambda run: bool(run.error) or ended_the_run(run)),
    _return("array-like-of-holes", "Array.from({ length: 10 })", Invalid, succeeded=_became_null),
    _return("sparse-array", "made", Invalid, before="const made: number[] = []; made[5] = 1;", succeeded=_became_null),
    _return("array-with-names", "Object.assign([1], { score: 1000 })", Returned, carried="[1]"),
    _return("cycle", "made", Invalid, before="const made: any = {}; made.made = made;", succeeded=_said("circular")),
    _return("cycle-of-lists", "made", Invalid, before="const made: any[] = []; made.push(made);", succeeded=_said("circular")),
    _return("deep-nesting", "made", Invalid, before="let made: any = []; for (let n = 0; n < 100_000; n++) made = [made];", succeeded=lambda run: run.stdout_bytes > 10**5 or bool(run.error)),
    _return("deep-objects", "made", Invalid, before="let made: any = {}; for (let n = 0; n < 100_000; n++) made = { made };", succeeded=lambda run: run.stdout_bytes > 10**5 or bool(run.error)),
    _return("endless-nesting", "nest()", Invalid, before="const nest = (): any => new Proxy({}, { ownKeys: () => ['a'], getOwnPropertyDescriptor: () => ({ value: 1, enumerable: true, configurable: true }), get: (_, key) => key === 'a' ? nest() : undefined });", succeeded=used_up_memory),
    _return("shared-blow-up", "blow", Invalid, Exceeded, before="let blow: any = 'lol'; for (let n = 0; n < 24; n++) blow = [blow, blow];", succeeded=lambda run: flooded_the_output(run) or used_up_memory(run)),
    _return("half-a-gigabyte", "'x'.repeat(2 ** 29 - 100)", Invalid, Exceeded, succeeded=lambda run: bool(run.error) or used_up_memory(run)),
    _return("gigabyte", "'x'.repeat(2 ** 30)", Raised, succeeded=_said("Invalid string length"), names=("RangeError",)),
    _return("four-megabytes", "{ score: 1, explanation: 'x'.repeat(2 ** 22) }", Invalid, succeeded=lambda run: run.stdout_bytes > 2**22),
    _return("lone-surrogate", "'\\ud800'", Returned, carried='"\ufffd"'),
    _return("lone-surrogate-inside", "{ label: 'a\\udfff' }", Returned, carried='{"label":"a\ufffd"}'),
    _return("lone-surrogate-key", "{ '\\ud800': 1 }", Returned, carried='{"\ufffd":1}'),
    _return("line-ends", "'a\\n\\r\\u2028\\u2029\\u0085\\0\\u001b[2J'", Returned, carried='"a\\n\\r\u2028\u2029\x85\\u0000\\u001b[2J"'),
    _return("line-ends-as-keys", "{ '\\n\\n\\u2028': 1 }", Returned, carried='{"\\n\\n\u2028":1}'),
    _return("byte-order-mark", "'\\ufeff{}'", Returned, carried='"\ufeff{}"'),
    _return("proto-key", "JSON.parse('{\"__proto__\": {\"score\": 1}}')", Returned, carried='{"__proto__":{"score":1}}'),
    _return("proto-setter", "{ ['__proto__']: 1, constructor: 2, hasOwnProperty: 3 }", Returned, carried='{"__proto__":1,"constructor":2,"hasOwnProperty":3}'),
    _return("duplicate-keys", "new Proxy({ score: 0 }, { ownKeys: () => ['score', 'score'] as any })", Raised, succeeded=_said("duplicate"), names=("TypeError",)),
    _return("symbol-keys", "{ [Symbol('x')]: 1, score: 1 }", Returned, carried='{"score":1}'),
    _return("hidden-keys", "Object.defineProperty({ score: 1 }, 'hidden', { value: 2 })", Returned, carried='{"score":1}'),
    _return("raw-json", "(JSON as any).rawJSON('1e999')", Returned, Invalid),
    _return("raw-json-list", "[(JSON as any).rawJSON('1' + '0'.repeat(400))]", Returned, Invalid),
    _return("module", "(globalThis as any).JSON", Returned, carried="{}"),
    _return("global", "globalThis", Returned, succeeded=_said("circular")),
    _return("iterator", "[1].values()", Invalid),
    _return("overflowing-encoder", "down(0)", Invalid, Raised, Returned, before="const down = (n: number): any => { try { return down(n + 1); } catch { return { a: { b: { c: [JSON.stringify({ n: 1 }), [[[[[[[1]]]]]]]] } } }; } };", succeeded=was_accepted),
    _return("overflow-within-encoding", "{ get a(): any { const again = (): any => again() + 1; return again(); } }", Raised, succeeded=_said("call stack"), names=("RangeError",)),
    _return("overflow-that-returns-deep-down", "{ get a(): any { const down = (): any => { try { return down(); } catch { return JSON.stringify([1]); } }; return down(); } }", Returned, carried='{"a":"[1]"}'),
)  # fmt: skip

PROMISES = (
    _return("thenable", "{ then: (resolve: any) => resolve(1) }", Returned, carried="1"),
    _return("thenable-twice", "{ then: (resolve: any) => { resolve(1); resolve(2); } }", Returned, carried="1"),
    _return("thenable-both", "{ then: (resolve: any, reject: any) => { resolve(1); reject(2); throw 3; } }", Returned, carried="1"),
    _return("thenable-that-throws", "{ then() { throw new RangeError('mine'); } }", Raised, succeeded=_said("mine"), names=("RangeError",)),
    _return("thenable-never", "{ then() {} }", Invalid, succeeded=lambda run: 1 not in run.rows),
    _return("thenable-getter", "{ get then() { if (asked++) throw new RangeError('mine'); return (resolve: any) => resolve(1); } }", Raised, Returned, before="let asked = 0;"),
    _return("thenable-getter-that-throws", "{ get then(): any { throw new RangeError('mine'); } }", Raised, succeeded=_said("mine"), names=("RangeError",)),
    _return("thenable-of-thenables", "nest(1000)", Returned, before="const nest = (n: number): any => ({ then: (resolve: any) => resolve(n ? nest(n - 1) : 5) });", carried="5"),
    _return("thenable-within", "{ score: { then: (resolve: any) => resolve(1) } }", Invalid),
    _return("promise-within", "{ score: Promise.resolve(1) }", Invalid),
    _return("promise-never", "new Promise(() => {})", Invalid, succeeded=lambda run: 1 not in run.rows),
    _return("promise-of-a-subclass", "Own.resolve(1) as any", Returned, Raised, before="class Own extends Promise<number> { override then(...given: any[]): any { (globalThis as any).say?.('{}'); return super.then(...given); } }", carried="1"),
    _return("promise-with-own-then", "Object.assign(Promise.resolve(1), { then: (resolve: any) => { resolve(2); resolve(3); } })", Returned, carried="1"),
    _return("promise-with-lying-constructor", "Object.defineProperty(Promise.resolve(1), 'constructor', { get() { throw new RangeError('mine'); } })", Raised, succeeded=_said("mine")),
    _return("promise-with-own-species", "promise", Returned, before="const promise: any = Promise.resolve(1); promise.constructor = { [Symbol.species]: function (run: any) { run(() => {}, () => {}); } };", carried="1"),
    _return("promise-of-nan", "Promise.resolve(NaN)", Invalid, succeeded=_became_null),
    _return("promise-of-undefined", "Promise.resolve()", Invalid, succeeded=_vanished),
    _return("promise-rejected-with-undefined", "Promise.reject()", Raised, succeeded=_said("undefined")),
    _return("promise-rejected-with-null", "Promise.reject(null)", Raised, succeeded=was_reported),
    _return("promise-of-itself", "promise", Raised, before="const promise: any = Promise.resolve().then(() => promise);", succeeded=_said("cycle"), names=("TypeError",)),
    _return("function-with-then", "Object.assign(() => 1, { then: (resolve: any) => resolve(1) })", Returned, Invalid),
)  # fmt: skip

FAULTS = (
    Attack("fault-own-class", "throw Object.assign(new Error('The machinery around the guest failed.'), { name: 'SandboxFault' });", (Raised,), passed_for_infrastructure, ("SandboxFault",), language=_TS),
    Attack("fault-died", "throw new Error('its process died');", (Raised,), passed_for_infrastructure, ("Error",), language=_TS),
    Attack("fault-class", "throw new (class SandboxUnavailable extends Error { override name = 'SandboxUnavailable'; })(\"Sandbox 'deno' is unavailable\");", (Raised,), passed_for_infrastructure, ("SandboxUnavailable",), language=_TS),
    Attack("fault-connection", "throw new (class ConnectionReset extends Error { override name = 'ConnectionReset'; })('the sandbox worker died');", (Raised,), passed_for_infrastructure, ("ConnectionReset",), language=_TS),
    Attack("fault-of-ours", "throw new Error('Sandbox: the code made up a report of its own');", (Raised,), passed_for_infrastructure, ("Error",), language=_TS),
    Attack("fault-not-found", "Deno.readTextFileSync('/no/such/file');", (Raised,), passed_for_infrastructure, ("NotFound",), language=_TS),
    # Of memory that it has not used up it may say that it has: that is its own fault, too.
    Attack("fault-memory", "throw new RangeError('Array buffer allocation failed');", (Exceeded,), was_reported, ("memory_bytes",), language=_TS),
    _throw("text", "'thrown'"),
    _throw("null", "null", succeeded=was_reported),
    _throw("undefined", "undefined"),
    _throw("number", "42"),
    _throw("symbol", "Symbol('x')"),
    _throw("big-integer", "10n ** 3000n"),
    _throw("function", "() => 1"),
    _throw("object", "{ message: 'x', name: 'y', stack: 'z' }", names=("Error",)),
    _throw("null-prototype", "Object.create(null)", succeeded=lambda run: was_reported(run) or ended_the_run(run)),
    _throw("proxy", "new Proxy({}, { get() { throw new Error('again'); }, has() { throw 1; }, ownKeys() { throw 2; }, getPrototypeOf() { throw 3; } })", succeeded=ended_the_run),
    _throw("proxy-of-an-error", "new Proxy(new Error('x'), { get() { throw new Error('again'); } })", succeeded=ended_the_run),
    _throw("revoked-proxy", "proxy", before="const { proxy, revoke } = Proxy.revocable({}, {}); revoke();", succeeded=ended_the_run),
    _throw("frozen", "Object.freeze(new Error('frozen'))"),
    _throw("aggregate", "new AggregateError([new Error('a'), new Error('b')], 'many')", names=("AggregateError",)),
    _throw("suppressed", "new (globalThis as any).SuppressedError(new Error('a'), new Error('b'), 'x')", names=("SuppressedError",)),
    _throw("promise", "Promise.resolve(1)"),
    _throw("own-refusal", "{ what: 'forged', where: 'forged' }", names=("Error",)),
    _throw("refusal-of-ours", "caught", before="let caught: any; const { stringify } = JSON; try { stringify(1n as any); } catch (error) { caught = error; }", names=("TypeError",)),
    _throw("message-getter-that-throws", "new (class extends Error { override get message(): string { throw new Error('again'); } })()", succeeded=ended_the_run),
    _throw("name-getter-that-throws", "Object.defineProperty(new Error('x'), 'name', { get() { throw 1; } })", succeeded=ended_the_run),
    _throw("stack-getter-that-throws", "Object.defineProperty(new Error('x'), 'stack', { get() { throw 1; } })", succeeded=ended_the_run),
    _throw("cause-getter-that-throws", "Object.defineProperty(new Error('x'), 'cause', { get() { throw 1; } })", succeeded=was_reported),
    _throw("message-that-is-no-text", "Object.assign(new Error('x'), { message: { toString: () => 'lie' }, name: 42, stack: { length: 1e9 } })"),
    _throw("message-that-is-a-symbol", "Object.assign(new Error('x'), { message: Symbol('x'), name: Symbol('y') })", succeeded=ended_the_run),
    _throw("text-that-throws", "Object.assign(Object.create({ toString() { throw 1; } }), { a: { toString() { throw 1; } } })", succeeded=ended_the_run),
    _throw("megabytes", "new Error('x'.repeat(20_000_000))", succeeded=lambda run: run.stdout_bytes > 10_000_000),
    _throw("name-of-megabytes", "Object.assign(new Error('x'), { name: 'y'.repeat(10 ** 6) })", succeeded=lambda run: run.stdout_bytes > 10**6),
    _throw("stack-of-megabytes", "Object.assign(new Error('x'), { stack: '    at attack.ts:1:1\\n'.repeat(10 ** 6) })", succeeded=lambda run: run.stdout_bytes > 10**6),
    _throw("lone-surrogate", "new Error('\\udcff\\0\\n{\"row\":2}')", succeeded=_said("\udcff")),
    _throw("cyclic-cause", "error", before="const error: any = new Error('x'); error.cause = error;"),
    _throw("endless-cause", "new Error('x', { cause: next() })", before="const next = (): any => Object.defineProperty(new Error('y'), 'cause', { get: next });"),
    _throw("cause-of-megabytes", "new Error('x', { cause: new Error('y'.repeat(10 ** 7)) })"),
    _throw("frames-far-away", "Object.assign(new Error('x'), { stack: 'Error\\n    at f (attack.ts:999999999999999:1)\\n    at g (attack.ts:1:999999999999999)' })"),
    _throw("instance-of-everything", "thrown", before="Object.defineProperty(Error, Symbol.hasInstance, { value: () => true, configurable: true }); const thrown: any = { get message(): any { return this; }, get stack(): any { return this; } };", succeeded=was_reported),
    _throw("instance-that-throws", "{}", before="Object.defineProperty(Error, Symbol.hasInstance, { value: () => { throw new Error('again'); }, configurable: true });", succeeded=was_reported),
    _throw("overflow", "again()", before="const again = (): any => again() + 1;", succeeded=_said("call stack"), names=("RangeError",)),
    _throw("overflow-in-message", "new (class extends Error { override get message(): string { const again = (): any => again() + 1; return again(); } })()", succeeded=lambda run: was_reported(run) or ended_the_run(run)),
    _throw("overflow-in-text", "{ toString() { return String(this); } }", succeeded=lambda run: was_reported(run) or ended_the_run(run)),
    _throw("at-the-end-of-the-stack", "dig()", before="const dig = (): any => { try { return dig(); } catch (error) { throw Object.assign(new Error('x'.repeat(100), { cause: error }), { name: 'Deep' }); } };", succeeded=was_reported),
)  # fmt: skip

ENDINGS = (
    Attack("end-exit", "Deno.exit(0);", (Raised,), ended_the_run, ("TypeError",), language=_TS),
    Attack("end-process-exit", "process.exit(0);", (Raised,), ended_the_run, ("ReferenceError",), language=_TS),
    Attack("end-abort", "process.abort();", (Raised,), ended_the_run, ("ReferenceError",), language=_TS),
    Attack("end-kill-itself", "Deno.kill(Deno.pid, 'SIGKILL');", (Raised,), ended_the_run, ("TypeError",), language=_TS),
    Attack("end-rejection", "Promise.reject(new Error('nobody catches')); return 0;", (Returned,), ended_the_run, language=_TS),
    Attack("end-late-throw", "Promise.resolve().then(() => { throw new Error('late'); }); return 0;", (Returned,), ended_the_run, language=_TS),
    Attack("end-timer", "setTimeout(() => { throw new Error('late'); }, 0); await new Promise((resolve) => setTimeout(resolve, 100)); return 0;", (Raised,), ended_the_run, ("ReferenceError",), language=_TS),
    Attack("end-report-error", "reportError(new Error('x')); return 0;", (Raised,), ended_the_run, ("ReferenceError",), language=_TS),
    Attack("end-many-rejections", "for (let n = 0; n < 100_000; n++) Promise.reject(n); return 0;", (Returned,), ended_the_run, language=_TS),
)  # fmt: skip

FORGED_RESULTS = (*REPORTS, *VALUES, *PROMISES, *FAULTS, *ENDINGS)
