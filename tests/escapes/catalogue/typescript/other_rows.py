"""Data of other rows: what a row before left behind, and what a row leaves for the next."""

from catalogue.attack import Attack, saw_another_row, spoiled_the_next_row
from evalcell_sandboxes import Invalid, Language, Raised, Returned

_TS = Language.TYPESCRIPT
_OWN = (Returned, Raised, Invalid)
"""What is bent may be what the attack's own report is made with."""


def _look(name: str, body: str) -> Attack:
    return Attack(f"look-{name}", body, (Returned,), saw_another_row, language=_TS)


def _bend(name: str, body: str, *outcomes: type) -> Attack:
    """Bends something and returns as if nothing had happened."""
    return Attack(
        f"bend-{name}", f"{body}\nreturn 'bent';", outcomes or (Returned,), spoiled_the_next_row, language=_TS
    )


LOOKS = (
    _look("array", "return noncesIn(SEEN);"),
    _look("class-static", "return noncesIn(Kept.nonces);"),
    _look("map", "return noncesIn([...CACHE]);"),
    _look("closure", "return noncesIn(closure.kept());"),
    _look("template-cache", "return noncesIn(NOTES.get(template()) ?? []);"),
    _look("weak-reference", "return noncesIn(LAST.weak?.deref() ?? {});"),
    _look("last", "return noncesIn(LAST.strong ?? {});"),
    _look("global", "return noncesIn((globalThis as any).row ?? '');"),
    _look("symbol", "return noncesIn((globalThis as any)[Symbol.for('row')] ?? '');"),
    _look("every-global", "return noncesIn(Reflect.ownKeys(globalThis).map((key) => { const value = (globalThis as any)[key]; return typeof value === 'string' ? value : ''; }));"),
    _look("prototype", "return noncesIn(({} as any).rowOfPrototype ?? '');"),
    _look("constructor", "return noncesIn((Array as any).row ?? '');"),
    _look("math", "return noncesIn((Math as any).row ?? '');"),
    _look("intl", "return noncesIn((Intl as any).row ?? '');"),
    _look("function", "return noncesIn((honest as any).row ?? '');"),
    _look("console", "return noncesIn((console as any).row ?? '');"),
    _look("regex-match", "return noncesIn((RegExp as any)['$&'], (RegExp as any).lastMatch, (RegExp as any).input, (RegExp as any).$_);"),
    _look("regex-group", "return (RegExp as any).$1 === '' ? [] : noncesIn(`nonce-${(RegExp as any).$1}`);"),
    _look("regex-context", "const { leftContext, rightContext, lastParen } = RegExp as any; return noncesIn(leftContext, rightContext, lastParen ? `nonce-${lastParen}` : '');"),
)  # fmt: skip

PLACES = (
    _look("storage", "return noncesIn((globalThis as any).localStorage?.getItem('row') ?? '');"),
    _look("rows-file", "try { return noncesIn((globalThis as any).Deno.readTextFileSync((globalThis as any).Deno.args[1])); } catch { return []; }"),
    _look("standard-output", "try { return noncesIn((globalThis as any).Deno.readTextFileSync('/proc/self/fd/1')); } catch { return []; }"),
    _look("heap", "try { const path = loot.target; (globalThis as any).process.getBuiltinModule('v8').writeHeapSnapshot(path);\nconst found = noncesIn((globalThis as any).Deno.readTextFileSync(path)); (globalThis as any).Deno.removeSync(path); return found; } catch { return []; }"),
)  # fmt: skip

BENDS = (
    _bend("json-stringify", "JSON.stringify = () => '{}';"),
    _bend("json-parse", "JSON.parse = () => 'bent';"),
    _bend("json-replaced", "(globalThis as any).JSON = { parse: () => 'bent', stringify: () => '\"bent\"' };"),
    _bend("to-json-of-objects", "(Object.prototype as any).toJSON = () => 'bent';", *_OWN),
    _bend("array-map", "Array.prototype.map = () => [] as any;"),
    _bend("array-join", "Array.prototype.join = () => 'bent';"),
    _bend("array-sort", "Array.prototype.sort = function () { return this; };"),
    _bend("array-push", "Array.prototype.push = () => { throw 'bent'; };"),
    _bend("array-iterator", "(Array.prototype as any)[Symbol.iterator] = function* () {};"),
    _bend("array-iterator-next", "Object.getPrototypeOf([][Symbol.iterator]()).next = () => ({ done: true, value: undefined });"),
    _bend("array-index-setter", "Object.defineProperty(Array.prototype, '0', { set() {}, get: () => 'bent', configurable: true });", *_OWN),
    _bend("array-is-array", "Array.isArray = (() => true) as any; Object.keys = () => [];"),
    _bend("array-species", "Object.defineProperty(Array, Symbol.species, { get: () => function () { return {}; } });"),
    _bend("array-concat-spread", "(Array.prototype as any)[Symbol.isConcatSpreadable] = false;"),
    _bend("object-keys", "Object.keys = () => ['bent'];"),
    _bend("object-entries", "Object.entries = (() => []) as any;"),
    _bend("object-getter", "Object.defineProperty(Object.prototype, 'bent', { get() { throw 'bent'; }, enumerable: true });"),
    _bend("object-setter", "Object.defineProperty(Object.prototype, 'nonce', { set() {}, get: () => 'bent' });"),
    _bend("object-then", "Object.defineProperty(Object.prototype, 'then', { value: (resolve: any) => resolve('bent'), configurable: true });", *_OWN),
    _bend("object-value-of", "Object.prototype.valueOf = () => 42 as any; Object.prototype.toString = () => 'bent'; (Object.prototype as any)[Symbol.toPrimitive] = () => 'bent';", *_OWN),
    _bend("object-prototype", "Object.setPrototypeOf(Array.prototype, { bent: true });"),
    _bend("object-attack", "(Object.prototype as any).attack = 'bend-object-attack';"),
    _bend("error-prototype", "Object.setPrototypeOf(Error.prototype, null); (Error.prototype as any).toString = () => 'bent';"),
    _bend("error-name", "(Error.prototype as any).bent = true; (Error.prototype as any).name = 'SandboxFault';"),
    _bend("error-instance", "Object.defineProperty(Error, Symbol.hasInstance, { value: () => true }); (Error.prototype as any).bent = true;"),
    _bend("stack-trace-limit", "Error.stackTraceLimit = 0;"),
    _bend("promise-then", "Promise.prototype.then = function () { return 'bent' as any; }; (Promise.prototype as any).bent = true;"),
    _bend("promise-then-later", "Promise.prototype.then = function () { return 'bent' as any; }; (Promise.prototype as any).bent = true; await null;"),
    _bend("promise-resolve", "Promise.resolve = (() => ({ then() {} })) as any; (Promise as any).bent = true;"),
    _bend("promise-constructor", "Object.defineProperty(Promise.prototype, 'constructor', { get() { throw 'bent'; } }); (Promise.prototype as any).bent = true;"),
    _bend("function-call", "Function.prototype.call = () => 'bent' as any;"),
    _bend("function-apply", "Function.prototype.apply = () => 'bent' as any;"),
    _bend("function-bind", "Function.prototype.bind = () => { throw 'bent'; }; (Function.prototype as any).bent = true;"),
    _bend("reflect-apply", "Reflect.apply = () => 'bent' as any;"),
    _bend("reflect-gone", "(globalThis as any).Reflect = undefined;"),
    _bend("string-replace", "String.prototype.replace = () => 'bent';"),
    _bend("string-split", "String.prototype.split = () => ['bent'];"),
    _bend("string-pad", "String.prototype.padEnd = String.prototype.toUpperCase = () => 'bent';"),
    _bend("string-slice", "String.prototype.slice = String.prototype.charCodeAt = String.prototype.isWellFormed = (() => 'bent') as any; String.prototype.trim = () => 'bent';"),
    _bend("string-itself", "(globalThis as any).String = () => 'bent';"),
    _bend("string-iterator", "(String.prototype as any)[Symbol.iterator] = function* () { yield 'bent'; }; String.prototype.trim = () => 'bent';"),
    _bend("number-itself", "(globalThis as any).Number = () => 42; Number.prototype;", *_OWN),
    _bend("number-finite", "Number.isFinite = () => true; Number.prototype.toFixed = () => 'bent';"),
    _bend("math", "Math.floor = Math.max = Math.min = () => 0;"),
    _bend("math-imul", "Math.imul = () => 0; Math.round = () => 0; Math.random();"),
    _bend("date", "Date.prototype.toISOString = () => 'bent';"),
    _bend("date-now", "Date.now = () => 0;"),
    _bend("date-itself", "(globalThis as any).Date = class { static now() { return 0; } static UTC() { return 0; } toISOString() { return 'bent'; } };"),
    _bend("map", "Map.prototype.set = function () { return this; };"),
    _bend("map-iterator", "(Map.prototype as any)[Symbol.iterator] = function* () {};"),
    _bend("set", "(globalThis as any).Set = class { add() {} *[Symbol.iterator]() {} };"),
    _bend("regex", "RegExp.prototype.exec = () => null; (RegExp.prototype as any)[Symbol.replace] = () => 'bent';"),
    _bend("regex-flags", "Object.defineProperty(RegExp.prototype, 'flags', { get: () => '' });"),
    _bend("symbol", "Symbol.for = () => Symbol('bent');"),
    _bend("proxy-of-global", "(globalThis as any).Object = new Proxy(Object, { get: (target, key) => key === 'keys' ? () => ['bent'] : Reflect.get(target, key) });"),
    _bend("global-frozen", "Object.freeze(globalThis); Object.freeze(Object.prototype); Object.freeze(Array.prototype); Object.freeze(JSON);", *_OWN),
    _bend("global-sealed", "Object.preventExtensions(globalThis); Object.seal(Math); Object.preventExtensions(JSON);"),
    _bend("global-deleted", "for (const name of ['Map', 'Set', 'JSON', 'Math', 'Promise', 'RegExp', 'Date', 'Reflect', 'Intl']) delete (globalThis as any)[name];"),
    _bend("global-all-deleted", "for (const name of Reflect.ownKeys(globalThis)) try { delete (globalThis as any)[name]; } catch { continue; }"),
    _bend("global-added", "(globalThis as any).bent = true;"),
    _bend("global-getter", "Object.defineProperty(globalThis, 'Math', { get() { throw 'bent'; } });"),
    _bend("global-prototype", "Object.setPrototypeOf(globalThis, null); (globalThis as any).bent = 1;", Returned, Raised),
    _bend("console-log", "console.log = () => { throw 'bent'; };"),
    _bend("console-gone", "(globalThis as any).console = { log() { throw 'bent'; }, group() {}, groupEnd() {}, count() {} };"),
    _bend("console-getter", "Object.defineProperty(globalThis, 'console', { get: () => ({ log() { throw 'bent'; } }) });"),
    _bend("intl", "Intl.NumberFormat = class { resolvedOptions() { return { locale: 'bent' }; } } as any;"),
    _bend("own-constants", "for (const key of Object.keys(WORLD)) WORLD[key] = 'bent';"),
    _bend("own-attacks", "const spoilt: any = Kept; Object.defineProperty(spoilt, 'nonces', { get() { throw 'bent'; } });"),
    _bend("own-class", "Point.prototype.toJSON = () => ({ x: -1 });"),
    _bend("own-map", "CACHE.set = () => { throw 'bent'; };"),
    _bend("late-microtask", "Promise.resolve().then(() => { Math.floor = () => -1; });"),
    _bend("later-still", "const wait = async () => { for (let n = 0; n < 5; n++) await null; Math.floor = () => -1; }; wait();"),
    _bend("late-job-that-forges", "const say = (globalThis as any).say; Promise.resolve().then(() => { Math.floor = () => -1; say?.(loot.report); });"),
    _bend("finalizer", "const registry = new FinalizationRegistry(() => { Math.floor = () => -1; }); (globalThis as any).kept = registry; (globalThis as any).bent = 1; registry.register({}, 1);"),
    _bend("generator-prototype", "Object.getPrototypeOf(Object.getPrototypeOf((function* () {})())).next = () => ({ done: true, value: 1 }); Object.getPrototypeOf([].values()).next = () => ({ done: true, value: 1 });"),
    _bend("typed-array", "(Uint8Array as any).fromBase64 = () => { throw 'bent'; }; Array.prototype.flatMap = () => { throw 'bent'; }; Array.prototype.concat = () => ['bent'];"),
    _bend("deno-facade", "(globalThis as any).bent = 1; (globalThis as any).Deno.readTextFileSync = () => { throw 1; };"),
)  # fmt: skip

OTHER_ROWS = (*LOOKS, *PLACES, *BENDS)
