"""Denial of service: time, memory, stack, output, and the engine's own death."""

from unsandboxed import Unsandboxed

from catalogue.attack import Attack, ended_the_run, flooded_the_output, never_ended, used_up_memory
from evalcell_sandboxes import Crashed, Exceeded, Invalid, Language, Raised, Returned

_TS = Language.TYPESCRIPT
_SHORT = {"wall_seconds": 0.3}
_SMALL = {"wall_seconds": 10.0, "memory_bytes": 96 * 1024**2}


def _spin(name: str, body: str, *outcomes: type) -> Attack:
    return Attack(
        f"spin-{name}", body, outcomes or (Exceeded,), never_ended, ("wall_seconds",), limits=_SHORT, language=_TS
    )


def _grow(name: str, body: str, *outcomes: type, names: tuple[str, ...] = ("memory_bytes",)) -> Attack:
    return Attack(f"grow-{name}", body, outcomes or (Exceeded,), used_up_memory, names, limits=_SMALL, language=_TS)


def _dig(name: str, body: str, *outcomes: type) -> Attack:
    return Attack(f"dig-{name}", body, outcomes or (Raised,), _fell, ("RangeError", "SyntaxError"), language=_TS)


def _flood(name: str, body: str) -> Attack:
    return Attack(
        f"flood-{name}", body, (Returned, Exceeded), flooded_the_output, ("wall_seconds",), limits=_SHORT, language=_TS
    )


def _fell(run: Unsandboxed) -> bool:
    return run.error.get("type") in ("RangeError", "SyntaxError") or ended_the_run(run)


SPINS = (
    _spin("loop", "while (true);"),
    _spin("for", "for (;;) { Math.random(); }"),
    _spin("swallowing", "while (true) try { while (true); } catch { continue; } finally { continue; }"),
    _spin("in-finally", "try { return 1; } finally { while (true); }"),
    _spin("microtasks", "const again = async () => { while (true) await null; }; await again();"),
    _spin("microtasks-by-then", "const again = (): any => Promise.resolve().then(again); await again();"),
    _spin("thenable", "const again: any = { then: (resolve: any) => resolve(again) }; await again;"),
    _spin("async-generator", "for await (const _ of (async function* () { while (true) yield 1; })()) continue;"),
    _spin("in-getter-of-a-result", "return { get score(): number { while (true); } };"),
    _spin("in-proxy-of-a-result", "return new Proxy({}, { ownKeys() { while (true); } });"),
    _spin("in-getter-of-then", "return { get then(): any { while (true); } };"),
    _spin("in-message", "throw new (class extends Error { override get message(): string { while (true); } })();"),
    _spin("in-name", "throw Object.defineProperty(new Error('x'), 'name', { get() { while (true); } });"),
    _spin("in-stack", "throw Object.defineProperty(new Error('x'), 'stack', { get() { while (true); } });"),
    _spin("in-name-of-a-capture", "(Error as any).captureStackTrace(new Error('x'), undefined); const lie = new (class extends Error { override get message(): string { while (true); } })(); String(lie.message);"),
    _spin("in-a-print", "console.log(new Proxy({}, { ownKeys() { while (true); }, getPrototypeOf() { while (true); }, get() { while (true); } })); const lie = { get a(): any { while (true); } }; console.log(lie.a);"),
    _spin("in-text-of-a-print", "console.log(`${{ toString() { while (true); } }}`);"),
    _spin("in-iterator", "[...(function* () { while (true) yield* []; })()];"),
    _spin("in-species", "class Own extends Array { static get [Symbol.species](): any { while (true); } } new Own(1).map((x) => x);"),
    _spin("in-to-primitive", "return +({ [Symbol.toPrimitive]() { while (true); } } as any);"),
    _spin("in-instance", "return ({}) instanceof ({ [Symbol.hasInstance]() { while (true); } } as any);"),
    _spin("generator", "const endless = (function* () { while (true) yield 1; })(); for (const _ of endless) continue;"),
    _spin("regex", "return /^(a+)+$/.test('a'.repeat(40) + 'b');"),
    _spin("regex-of-groups", "return /(.*)*\\1x/.exec('a'.repeat(60));"),
    _spin("regex-replace", "return 'a'.repeat(40).replace(/(a+)+b/g, 'x');"),
    _spin("integer-power", "return (7n ** (7n ** 9n)).toString().length;"),
    _spin("integer-text", "let n = 3n; while (true) n = (n * n) % (1n << 1_000_000n) + 1n;"),
    _spin("sort", "return Array.from({ length: 10 ** 6 }, (_, n) => n).sort(() => { for (let n = 0; n < 1e9; n++); return -1; }).length;"),
    _spin("native-sort", "while (true) new Float64Array(10 ** 6).map((_, n) => -n).sort();"),
    _spin("native-index", "const long = 'a'.repeat(10 ** 6); while (true) (long + long).indexOf(long + 'b');"),
    _spin("array-like", "return Array.prototype.indexOf.call({ length: 2 ** 53 - 1 }, 1);"),
    _spin("array-of-holes", "const made: any[] = []; made.length = 2 ** 32 - 2; made[2 ** 32 - 3] = 1; while (true) for (const each of made) if (each) break;"),
    _spin("reviver", "JSON.parse('[' + '1,'.repeat(10 ** 5) + '1]', () => { while (true); });"),
    _spin("proxy-chain", "let proxy: any = {}; for (let n = 0; n < 1000; n++) proxy = new Proxy(proxy, {}); while (true) proxy.x;"),
    _spin("intl", "const format = new Intl.DateTimeFormat('ar-EG', { dateStyle: 'full', timeStyle: 'full' }); while (true) format.formatToParts(0);"),
    _spin("intl-new", "while (true) new Intl.Segmenter('th', { granularity: 'word' }).segment('x'.repeat(1000));"),
    _spin("temporal", "const { Temporal } = globalThis as any; while (true) (Temporal?.PlainDate.from('2020-01-01').add({ days: 1 }) ?? Date.now());"),
    _spin("normalize", "const long = 'a\\u0300'.repeat(10 ** 6); while (true) (long + Math.random()).normalize('NFKD');"),
    _spin("atomics", "Atomics.wait(new Int32Array(new SharedArrayBuffer(8)), 0, 0);"),
    _spin("atomics-with-time", "Atomics.wait(new Int32Array(new SharedArrayBuffer(8)), 0, 0, 1e9);"),
    _spin("hash-collisions", "const map = new Map(); for (let n = 0; ; n++) { map.set(n % 1000, n); map.delete(n % 999); }"),
    _spin("date", "while (true) Date.parse('x'.repeat(10 ** 5));"),
    _spin("finalizers", "const registry = new FinalizationRegistry(() => { while (true); }); while (true) { registry.register({}, 1); new Array(1000).fill(0); }"),
    _spin("stack-traces", "const deep = (n: number): any => n ? deep(n - 1) : (() => { while (true) new Error('x').stack; })(); (Error as any).stackTraceLimit = 1000; deep(1000);"),
    # Nothing else ever happens in a context, so what waits for something is told at once that it will not come.
    Attack("wait-promise", "await new Promise(() => {});", (Invalid,), lambda run: 1 not in run.rows, language=_TS),
    Attack("wait-atomics", "await (Atomics as any).waitAsync(new Int32Array(new SharedArrayBuffer(8)), 0, 0).value;", (Invalid,), lambda run: 1 not in run.rows, language=_TS),
    Attack("wait-atomics-with-time", "await (Atomics as any).waitAsync(new Int32Array(new SharedArrayBuffer(8)), 0, 0, 1e9).value;", (Invalid,), lambda run: 1 not in run.rows, language=_TS),
    Attack("wait-finalizer", "await new Promise((resolve) => { const registry = new FinalizationRegistry(resolve); (globalThis as any).registry = registry; registry.register({}, 1); });", (Invalid,), lambda run: 1 not in run.rows, language=_TS),
    Attack("wait-timer", "await new Promise((resolve) => setTimeout(resolve, 1e9));", (Raised,), never_ended, ("ReferenceError",), language=_TS),
    Attack("wait-input", "Deno.stdin.readSync(new Uint8Array(1));", (Raised,), never_ended, ("TypeError",), language=_TS),
    Attack("wait-prompt", "return prompt('?') ?? 'nothing';", (Raised,), lambda run: 1 in run.rows and "error" not in run.rows[1], ("ReferenceError",), language=_TS),
    Attack("wait-permission", "Deno.permissions.requestSync({ name: 'run' }); Deno.stdin.readSync(new Uint8Array(1));", (Raised,), never_ended, ("TypeError",), language=_TS),
)  # fmt: skip

GROWTH = (
    _grow("list", "const kept = []; while (true) kept.push(new Array(1000).fill(Math.random()));"),
    _grow("numbers", "const kept: number[] = []; for (let n = 0.5; ; n++) kept.push(n);", Exceeded, Crashed),
    _grow("text", "let text = 'x'; const kept = []; while (true) { text = text + text.slice(0, 1000) + Math.random(); kept.push([...text]); }"),
    _grow("join", "return Array.from({ length: 2 ** 20 }, () => 'x'.repeat(500)).map((each, n) => each + n).join('').split('').length;"),
    _grow("map", "const map = new Map(); for (let n = 0; ; n++) map.set(n, { n });", Exceeded, Raised, names=("memory_bytes", "RangeError")),
    _grow("set", "const set = new Set(); for (let n = 0; ; n++) set.add(`key ${n}`);", Exceeded, Raised, names=("memory_bytes", "RangeError")),
    _grow("weak-map", "const map = new WeakMap(); const kept = []; while (true) { const key = {}; kept.push(key); map.set(key, new Array(100)); }"),
    _grow("object", "const made: any = {}; for (let n = 0; ; n++) made[`key ${n}`] = [n];"),
    _grow("symbols", "const kept = []; for (let n = 0; ; n++) kept.push(Symbol.for(`symbol ${n}`));"),
    _grow("closures", "let next = () => 0; while (true) { const before = next; const kept = new Array(10_000).fill(0.5); next = () => kept.length + before(); }"),
    _grow("promises", "const kept = []; while (true) kept.push(new Promise(() => {}).then(() => 1));"),
    _grow("rejections", "while (true) Promise.reject(new Error('x'));"),
    _grow("microtasks", "while (true) Promise.resolve().then(() => 1);"),
    _grow("nested", "let kept: any = []; while (true) kept = [kept, [...kept], new Array(100)];"),
    _grow("integer", "const kept = []; for (let n = 1n; ; n++) kept.push((1n << 1_000_000n) + n);"),
    _grow("registry", "const registry = new FinalizationRegistry(() => {}); const kept: object[] = []; while (true) { kept.push({}); registry.register(kept.at(-1)!, {}); }"),
    _grow("regexes", "const kept = []; for (let n = 0; ; n++) { const made = new RegExp(`(${'a|'.repeat(1000)}${n})`); made.test('b'); kept.push(made); }"),
    _grow("swallowing", "const kept: unknown[] = []; while (true) try { kept.push(new Array(10_000).fill(0.5)); } catch { continue; }"),
    _grow("errors", "const kept = []; while (true) { kept.push(new Error('x', { cause: new Array(10_000).fill(0.5) })); }"),
    _grow("generators", "const kept = []; while (true) { const made = (function* () { yield new Array(100); })(); made.next(); kept.push(made); }"),
    _grow("buffer", "const kept = new Uint8Array(2 * 10 ** 9); return kept.length;"),
    _grow("buffer-touched", "const kept = new Uint8Array(2 * 10 ** 9); kept.fill(1); return kept[7];"),
    _grow("buffers-touched", "const kept = []; while (true) kept.push(new Uint8Array(2 ** 20).fill(1));"),
    _grow("buffers-shared", "const kept = []; while (true) kept.push(new Uint8Array(new SharedArrayBuffer(2 ** 20)).fill(1));"),
    _grow("buffer-resized", "const buffer: any = new (ArrayBuffer as any)(8, { maxByteLength: 2 ** 31 }); buffer.resize(2 ** 31); new Uint8Array(buffer).fill(1); return buffer.byteLength;", Exceeded, Raised, names=("memory_bytes", "RangeError")),
    _grow("buffer-grown", "const buffer: any = new (SharedArrayBuffer as any)(8, { maxByteLength: 2 ** 31 }); buffer.grow(2 ** 31); new Uint8Array(buffer).fill(1); return buffer.byteLength;", Exceeded, Raised, Crashed, names=("memory_bytes", "RangeError")),
    _grow("buffers-swallowing", "const kept = []; for (;;) try { kept.push(new Uint8Array(2 ** 24).fill(1)); } catch (error) { kept.push(new Array(100_000).fill(error)); }"),
    _grow("array-from", "return Array.from({ length: 2 ** 32 - 1 }, (_, n) => n).length;", Exceeded, Crashed, Raised, names=("memory_bytes", "RangeError")),
    _grow("array-filled", "return new Array(2 ** 27).fill(0.5).length;", Exceeded, Crashed, Raised, names=("memory_bytes", "RangeError")),
    _grow("spread", "const long = new Array(2 ** 25).fill(1); return [...long, ...long, ...long, ...long, ...long, ...long, ...long, ...long].length;", Exceeded, Crashed, Raised, names=("memory_bytes", "RangeError")),
    _grow("flat", "const long = new Array(2 ** 20).fill(1.5); return new Array(1000).fill(long).flat().length;", Exceeded, Crashed, Raised, names=("memory_bytes", "RangeError")),
    _grow("parsed", "return JSON.parse('[' + '[],'.repeat(10 ** 7) + '[]]').length;"),
    _grow("split", "return 'x'.repeat(2 ** 28).split('').length;", Exceeded, Crashed, Raised, names=("memory_bytes", "RangeError")),
    _grow("padded", "const kept = []; for (let n = 0; ; n++) kept.push('x'.padEnd(2 ** 20, `y${n}`));"),
    _grow("structured", "let made: any = {}; for (let n = 0; n < 26; n++) made = { a: made, b: JSON.parse(JSON.stringify(made)) }; return 'made';"),
    _grow("getters", "return { get a() { const kept = []; while (true) kept.push(new Array(1000).fill(0.5)); } };"),
    _grow("keys-of-a-proxy", "return new Proxy({}, { ownKeys: () => { const kept: string[] = []; for (let n = 0; ; n++) kept.push(`key ${n}`); } });"),
    _grow("message", "throw new (class extends Error { override get message(): string { const kept = []; while (true) kept.push(new Array(1000).fill(0.5)); } })();"),
    _grow("intl", "const kept = []; while (true) kept.push(new Intl.DateTimeFormat('de', { dateStyle: 'full' }), new Intl.Collator('zh'));", Exceeded, Crashed, names=("memory_bytes", "wall_seconds")),
)  # fmt: skip

DEPTHS = (
    _dig("function", "const again = (): any => again() + 1; return again();"),
    _dig("mutual", "const one = (): any => two() + 1; const two = (): any => one() + 1; return one();"),
    _dig("text", "const lie: any = { toString: () => `${lie}` }; return `${lie}`;"),
    _dig("array-text", "let deep: any = []; for (let n = 0; n < 100_000; n++) deep = [deep]; return String(deep);"),
    _dig("json-replacer", "let deep: any = []; for (let n = 0; n < 100_000; n++) deep = [deep]; return JSON.stringify(deep, (_, value) => value);"),
    _dig("json-parse-reviver", "return JSON.parse('['.repeat(100_000) + ']'.repeat(100_000), (_, value) => value);"),
    _dig("flat", "let deep: any = []; for (let n = 0; n < 100_000; n++) deep = [deep]; return deep.flat(Infinity).length;"),
    _dig("proxy", "let proxy: any = {}; for (let n = 0; n < 200_000; n++) proxy = new Proxy(proxy, {}); return proxy.x;"),
    _dig("proxy-prototype", "const lie: any = { __proto__: new Proxy({}, { get: (_, key, self) => self[key] }) }; return lie.x;"),
    _dig("getter", "const lie: any = { get a(): any { return lie.a; } }; return lie.a;"),
    _dig("constructor", "class Own { constructor() { new Own(); } } return new Own();"),
    _dig("spread", "return Math.max(...new Array(10 ** 6).fill(1));"),
    _dig("apply", "return String.fromCharCode.apply(null, new Array(10 ** 6).fill(65));"),
    _dig("replace", "const again = (): any => 'x'.replace(/x/, again); return again();"),
    _dig("sort", "const again = (): any => [1, 2].sort(again as any); return again();"),
    _dig("to-json", "const lie: any = { toJSON: () => JSON.stringify(lie) }; return JSON.stringify(lie);"),
    _dig("regex-source", "return new RegExp('('.repeat(100_000) + ')'.repeat(100_000)).test('x');"),
    _dig("printed", "const lie: any = { get a(): any { console.log(lie); return 1; } }; console.log(lie); const again = (): any => { console.log({ get b() { return again(); } }); return again(); }; return again();"),
    _dig("iterator", "const again: any = { [Symbol.iterator]: () => [...again][Symbol.iterator]() }; return [...again];"),
    _dig("species", "class Own extends Array { static get [Symbol.species](): any { return new Own(1).map((x) => x); } } return new Own(1).map((x) => x);"),
    Attack("dig-json-parse", "return JSON.parse('['.repeat(10 ** 6) + ']'.repeat(10 ** 6)).length;", (Raised, Returned), lambda run: run.attack == 1 or _fell(run), ("RangeError",), language=_TS),
    Attack("dig-regex", "return /^(?:a|b)*c/.test('ab'.repeat(10 ** 6));", (Raised, Returned), lambda run: run.attack is False or _fell(run), ("RangeError",), language=_TS),
    Attack("dig-until-caught", "let depth = 0; const again = (): any => { depth++; try { again(); } catch { depth++; } }; again(); return depth > 1000;", (Returned,), lambda run: run.attack is True, language=_TS, carried="true"),
)  # fmt: skip

FLOODS = (
    _flood("lines", "const long = 'x'.repeat(10_000); while (true) console.log(long);"),
    _flood("errors", "console.error = console.log; const long = 'x'.repeat(10_000); while (true) console.error(long);"),
    _flood("at-once", "console.log('x'.repeat(5 * 10 ** 7)); return 0;"),
    _flood("endless-line", "const long = 'x'.repeat(2 ** 20); for (let n = 0; n < 200; n++) console.log(long, long); return 0;"),
    _flood("wide", "const wide = '\\u20ac'.repeat(10_000); while (true) console.log(wide);"),
    _flood("escaped", "const wide = '\\0\\u001b\\ud800'.repeat(10_000); while (true) console.log(wide);"),
    _flood("arguments", "console.log(...new Array(500).fill('x'.repeat(10 ** 5))); return 0;"),
    _flood("grouped", "for (let n = 0; n < 10_000; n++) console.group(); while (true) console.log('x'.repeat(1000));"),
    _flood("objects", "const long = { text: 'x'.repeat(9_000) }; while (true) console.log(long, long.text);"),
    _flood("in-a-message", "for (let n = 0; ; n++) { const error = new Error('x'.repeat(10_000)); console.log(error); }"),
    Attack("fill-disk", "const file = Deno.openSync(loot.target, { write: true, create: true }); const bytes = new Uint8Array(2 ** 20); while (true) file.writeSync(bytes);", (Raised,), lambda run: run.canaries.target.exists() and run.canaries.target.stat().st_size > 32 * 1024**2, ("TypeError",), language=_TS),
    Attack("fill-directory", "Deno.mkdirSync(loot.target); for (let n = 0; n < 1000; n++) Deno.createSync(`${loot.target}/${n}`).close();", (Raised,), lambda run: len(list(run.canaries.target.glob("*"))) == 1_000, ("TypeError",), language=_TS),
    Attack("fill-descriptors", "const kept = []; while (true) kept.push(Deno.openSync('/dev/null'));", (Raised,), lambda run: "os error 24" in run.error.get("text", ""), ("TypeError",), language=_TS),
    Attack("fork-many", "for (let n = 0; n < 8; n++) new Deno.Command('mkdir', { args: [`${loot.target}${n}`] }).outputSync();", (Raised,), lambda run: len(list(run.canaries.directory.glob("planted*"))) == 8, ("TypeError",), language=_TS),
    Attack("workers-many", "const workers = Array.from({ length: 2 }, () => new Worker('data:text/javascript,', { type: 'module' })); workers.forEach((worker) => worker.terminate()); return workers.length;", (Raised,), lambda run: run.attack == 2 or ended_the_run(run), ("ReferenceError",), language=_TS),
)  # fmt: skip

DENIAL = (*SPINS, *GROWTH, *DEPTHS, *FLOODS)
