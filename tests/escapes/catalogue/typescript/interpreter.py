"""Interpreter and operating system: out of the context, into the host's files, network and processes."""

from catalogue.attack import (
    Attack,
    got_the_secret,
    killed_the_victim,
    reached_the_listener,
    returned_true,
    touched_files,
)
from evalcell_sandboxes import Language, Raised, Returned

_TS = Language.TYPESCRIPT
# What a context says of what it has not: the name stands for nothing, the thing is no function, there is no such file.
_ABSENT = ("ReferenceError", "TypeError", "NotFound", "PermissionDenied", "EvalError")
_UNMADE = ("EvalError",)
_NODE = "process.getBuiltinModule('node:{}')"


def _read(name: str, body: str, names: tuple[str, ...] = _ABSENT) -> Attack:
    return Attack(f"read-{name}", body, (Raised,), got_the_secret, names, language=_TS)


def _code(
    name: str, maker: str, call: str = "make(code)()", *, before: str = "", names: tuple[str, ...] = _UNMADE
) -> Attack:
    """Gets hold of something that makes code of text, and has it read the file."""
    text = "const code = `return Deno.readTextFileSync(${JSON.stringify(loot.file)})`;"
    body = f"{before}\n{text}\nconst make: any = {maker};\nreturn {call};"
    return Attack(f"code-{name}", body, (Raised,), got_the_secret, names, language=_TS)


def _stack(name: str, body: str, outcome: type = Raised) -> Attack:
    """Wants what describes the frames of a stack, which might lead to those outside."""
    body = f"{body}\nreturn Array.isArray(new Error().stack);"
    return Attack(f"frames-{name}", body, (outcome,), returned_true, ("TypeError",), language=_TS)


def _learn(name: str, body: str, outcome: type = Raised) -> Attack:
    """The body returns true if it learnt what it should not."""
    return Attack(f"learn-{name}", body, (outcome,), returned_true, _ABSENT, language=_TS)


def _write(name: str, body: str) -> Attack:
    return Attack(f"write-{name}", body, (Raised,), touched_files, _ABSENT, language=_TS)


def _connect(name: str, body: str) -> Attack:
    return Attack(f"connect-{name}", body, (Raised,), reached_the_listener, _ABSENT, language=_TS)


def _start(name: str, body: str) -> Attack:
    """The body starts something that writes to the target."""
    return Attack(f"start-{name}", body, (Raised,), touched_files, _ABSENT, language=_TS)


_FACADE = ("NotFound",)

READS = (
    _read("text", "return Deno.readTextFileSync(loot.file);", _FACADE),
    _read("bytes", "return new TextDecoder().decode(Deno.readFileSync(loot.file));"),
    _read("bytes-by-code", "return String.fromCharCode(...Deno.readFileSync(loot.file));", _FACADE),
    _read("text-later", "return await Deno.readTextFile(loot.file);", _FACADE),
    _read("bytes-later", "return String.fromCharCode(...await Deno.readFile(loot.file));", _FACADE),
    _read("dot-dot", "return Deno.readTextFileSync('../'.repeat(40) + loot.file.slice(1));", _FACADE),
    _read("dot-dot-of-a-directory", "return Deno.readTextFileSync('/tmp/../../../../../' + loot.file);", _FACADE),
    _read("double-slash", "return Deno.readTextFileSync('/' + loot.file.replaceAll('/', '//'));", _FACADE),
    _read("url", "return Deno.readTextFileSync(new URL('file://' + loot.file));"),
    _read("lying-path", "let asked = 0; const path: any = { toString: () => asked++ ? loot.file : loot.file.slice(0) };\nreturn Deno.readTextFileSync(String(path));", _FACADE),
    _read("open", "const file = Deno.openSync(loot.file); const bytes = new Uint8Array(99); file.readSync(bytes); return String.fromCharCode(...bytes);"),
    _read("own-assets-of-the-prototype", "(Object.prototype as any)[loot.file.slice(1)] = { content: 'planted' };\ntry { return Deno.readTextFileSync(loot.file); } finally { delete (Object.prototype as any)[loot.file.slice(1)]; }", _FACADE),
    _read("import", "return (await import('file://' + loot.directory + '/module.ts')).SECRET;"),
    _read("import-path", "return (await import(loot.directory + '/module.ts')).SECRET;"),
    _read("import-as-text", "return (await import('data:text/javascript,export default Deno.readTextFileSync(' + encodeURIComponent(JSON.stringify(loot.file)) + ')')).default;"),
    _read("import-blob", "return (await import(URL.createObjectURL(new Blob([`export default Deno.readTextFileSync(${JSON.stringify(loot.file)})`], { type: 'text/javascript' })))).default;"),
    _read("import-fs", "return (await import('node:fs')).readFileSync(loot.file, 'utf8');"),
    _read("import-bare-fs", "return (await import('node:fs/promises')).readFile(loot.file, 'utf8');"),
    _read("import-sqlite", "const { DatabaseSync } = await import('node:sqlite'); return JSON.stringify(new DatabaseSync(loot.database).prepare('select * from t').all());"),
    _read("import-child-process", "return (await import('node:child_process')).execFileSync('cat', [loot.file]).toString();"),
    _read("import-vm", "return (await import('node:vm')).runInThisContext('Deno').readTextFileSync(loot.file);"),
    _read("import-module", "return (await import('node:module')).createRequire('file:///x.js')('fs').readFileSync(loot.file, 'utf8');"),
    _read("builtin-fs", f"return {_NODE.format('fs')}.readFileSync(loot.file, 'utf8');"),
    _read("builtin-fs-of-the-global", "return (globalThis as any).process.getBuiltinModule('fs').readFileSync(loot.file, 'utf8');"),
    _read("fetch", "return await (await fetch('file://' + loot.file)).text();"),
    _read("worker", """
const code = `postMessage(Deno.readTextFileSync(${JSON.stringify(loot.file)}))`;
const worker = new Worker('data:text/javascript,' + encodeURIComponent(code), { type: 'module' });
const { data } = await new Promise<any>((resolve) => worker.onmessage = resolve);
worker.terminate();
return data;
"""),
    _read("node-worker", """
const { Worker } = await import('node:worker_threads');
const code = `require('worker_threads').parentPort.postMessage(require('fs').readFileSync(${JSON.stringify(loot.file)}, 'utf8'))`;
const worker = new Worker(code, { eval: true });
return await new Promise((resolve, reject) => { worker.once('message', resolve); worker.once('error', reject); });
"""),
    _read("command", "return new TextDecoder().decode(new Deno.Command('cat', { args: [loot.file] }).outputSync().stdout);"),
    _read("ffi", "const lib = Deno.dlopen('libc.so.6', { open: { parameters: ['buffer', 'i32'], result: 'i32' }, read: { parameters: ['i32', 'buffer', 'usize'], result: 'isize' } });\nconst bytes = new Uint8Array(99); const fd = lib.symbols.open(new TextEncoder().encode(loot.file + '\\0'), 0);\nlib.symbols.read(fd, bytes, 99n); return String.fromCharCode(...bytes);"),
    _read("own-environ", "return Deno.readTextFileSync('/proc/self/environ');", _FACADE),
    _read("other-environ", "return Deno.readTextFileSync(`/proc/${loot.victim}/environ`);", _FACADE),
    _read("descriptor", "Deno.openSync(loot.file); for (let fd = 3; fd < 256; fd++) { try { const found = Deno.readTextFileSync(`/proc/self/fd/${fd}`); if (found.startsWith('canary')) return found; } catch { continue; } }\nthrow new TypeError('nothing');"),
    Attack("environment-get", "return Deno.env.get(loot.variable) ?? null;", (Returned,), got_the_secret, language=_TS),
    Attack("environment-all", "return Deno.env.toObject();", (Returned,), got_the_secret, language=_TS),
    Attack("environment-own-key", "return [Deno.env.has(loot.variable), Object.entries(Deno.env.toObject())];", (Returned,), got_the_secret, language=_TS),
    _read("environment-process", "return process.env[loot.variable];"),
    _read("environment-import", "return (await import('node:process')).env[loot.variable];"),
    _read("environment-command", "return new TextDecoder().decode(new Deno.Command('env').outputSync().stdout);"),
)  # fmt: skip

_OVERFLOWN = "let thrown: any; const again = (): any => again() + 1; try { again(); } catch (error) { thrown = error; }"

CODE = (
    _code("function", "Function"),
    _code("new-function", "(text: string) => new Function(text)"),
    _code("eval", "globalThis.eval", "make(code.replace('return', ''))"),
    _code("eval-aliased", "Reflect.get(globalThis, 'ev' + 'al')", "make(code.replace('return', ''))"),
    _code("arrow", "(() => 1).constructor"),
    _code("async", "(async () => 1).constructor", "await make(code)()"),
    _code("generator", "(function* () {}).constructor", "make(code)().next().value"),
    _code("async-generator", "(async function* () {}).constructor", "(await make(code)().next()).value"),
    _code("object", "({} as any).constructor.constructor"),
    _code("reflected", "(text: string) => Reflect.construct(Function, [text])"),
    _code("applied", "(text: string) => Reflect.apply(Function, null, [text])"),
    _code("bound", "Function.bind(null)"),
    _code("proxied", "new Proxy(Function, {})"),
    _code("subclass", "(text: string) => new (class extends Function {})(text)"),
    _code("method", "[].map.constructor"),
    _code("class-static", "(class { static make() {} }).make.constructor"),
    _code("getter", "Object.getOwnPropertyDescriptor(Map.prototype, 'size')!.get!.constructor"),
    _code("iterator", "([] as any)[Symbol.iterator]().next.constructor"),
    _code("iterator-helper", "Object.getPrototypeOf([].values().map((each: any) => each)).next.constructor"),
    _code("species", "(Array as any)[Symbol.species].constructor"),
    _code("native-error", "thrown.constructor.constructor", before="let thrown: any; try { (null as any).x; } catch (error) { thrown = error; }"),
    _code("native-method-error", "thrown.constructor.constructor", before="let thrown: any; try { 'x'.repeat(-1); } catch (error) { thrown = error; }"),
    _code("overflow", "thrown.constructor.constructor", before=_OVERFLOWN),
    _code("syntax-error", "thrown.constructor.constructor", before="let thrown: any; try { JSON.parse('{'); } catch (error) { thrown = error; }"),
    _code("regex-error", "thrown.constructor.constructor", before="let thrown: any; try { new RegExp('('); } catch (error) { thrown = error; }"),
    _code("import-error", "thrown.constructor.constructor", before="let thrown: any; try { await import('nothing:of-that-kind'); } catch (error) { thrown = error; }"),
    _code("import-promise", "promise.constructor.constructor", before="const promise: any = import('nothing:of-that-kind'); promise.catch(() => {});"),
    _code("read-error", "thrown.constructor.constructor", before="let thrown: any; try { Deno.readTextFileSync('/nothing'); } catch (error) { thrown = error; }"),
    _code("read-function", "Deno.readTextFileSync.constructor"),
    _code("read-promise", "promise.constructor.constructor", before="const promise: any = Deno.readTextFile('/nothing'); promise.catch(() => {});"),
    _code("console", "console.log.constructor"),
    _code("console-method", "console.group.bind.constructor"),
    _code("printed", "found.constructor.constructor", before="let found: any; console.log(new Proxy({}, { ownKeys(target) { found = target; return []; }, getOwnPropertyDescriptor(target) { found = target; return undefined; }, get(target) { found = target; return undefined; } })); found ??= {};"),
    _code("reviver", "found.constructor.constructor", before="let found: any; JSON.parse('[1]', function (this: any, key, value) { found = this; return value; });"),
    _code("replacer", "found.constructor.constructor", before="let found: any; JSON.stringify([1], function (this: any, key, value) { found = this; return value; });"),
    _code("replace-callback", "found[0].constructor.constructor", before="let found: any; 'x'.replace(/(?<a>x)/, (...things: any[]) => { found = [things.at(-1).constructor ? things.at(-1) : things]; return ''; });"),
    _code("match-groups", "Object.getPrototypeOf('x'.match(/x/)!).constructor.constructor"),
    _code("tagged-template", "found.constructor.constructor", before="let found: any; ((parts: any) => { found = parts; })`x`;"),
    _code("arguments", "found.constructor.constructor", before="let found: any; (function () { found = arguments; })();"),
    _code("wait-promise", "found.value.constructor.constructor", before="const found: any = (Atomics as any).waitAsync(new Int32Array(new SharedArrayBuffer(8)), 0, 0, 1e9);"),
    _code("weak-reference", "new WeakRef(() => 1).deref()!.constructor"),
    _code("intl", "new Intl.NumberFormat().format.constructor"),
    _code("temporal", "((globalThis as any).Temporal?.Now.instant ?? Date.now).constructor"),
    _code("row", "(loot as any).constructor.constructor"),
    _code("this-of-hook", "(ATTACKS as any).constructor.constructor"),
    _code("global-chain", "Object.getPrototypeOf(Object.getPrototypeOf(globalThis)).constructor.constructor"),
    _code("disposal", "new (globalThis as any).DisposableStack().use.constructor"),
)  # fmt: skip

FRAMES = (
    _stack("set", "(Error as any).prepareStackTrace = (_: unknown, sites: unknown) => sites;"),
    _stack("define", "Object.defineProperty(Error, 'prepareStackTrace', { value: (_: unknown, sites: unknown) => sites });"),
    _stack("define-getter", "Object.defineProperty(Error, 'prepareStackTrace', { get: () => (_: unknown, sites: unknown) => sites });"),
    _stack("assign", "Object.assign(Error, { prepareStackTrace: (_: unknown, sites: unknown) => sites });"),
    _stack("reflect", "Reflect.set(Error, 'prepareStackTrace', (_: unknown, sites: unknown) => sites);", Returned),
    _stack("deleted-first", "delete (Error as any).prepareStackTrace; (Error as any).prepareStackTrace = (_: unknown, sites: unknown) => sites;"),
    Attack("frames-captured", "const at: any = {}; (Error as any).prepareStackTrace = (_: unknown, sites: unknown) => sites;\n(Error as any).captureStackTrace(at); return Array.isArray(at.stack);", (Raised,), returned_true, ("TypeError",), language=_TS),
    Attack("frames-of-ours", "return /(file:|node:|ext:|prelude|worker\\.js|naive)/.test(new Error().stack!);", (Returned,), returned_true, language=_TS),
    Attack("frames-of-ours-later", "await null; const error = await Promise.reject(new Error('x')).catch((error) => error);\nreturn await new Promise((resolve) => resolve(/(file:|node:|ext:|prelude)/.test(error.stack + new Error().stack)));", (Returned,), returned_true, language=_TS),
    Attack("frames-of-ours-in-a-callback", "let stack = ''; JSON.stringify({ toJSON() { stack += new Error().stack; } }); [1].map(() => stack += new Error().stack);\nconst lie: any = { get name() { stack += new Error().stack; return 'x'; } }; (Error as any).captureStackTrace(lie); const liar = lie.stack; stack += liar;\nreturn /(file:|node:|ext:|prelude|evalcell:)/.test(stack);", (Returned,), returned_true, language=_TS),
    Attack("frames-while-a-stack-is-made", "let stack = ''; (Error as any).stackTraceLimit = 100; const tell = () => { stack += new Error().stack; return 'x'; };\nfor (const name of ['name', 'message', 'constructor']) { const lie: any = new Error('x'); Object.defineProperty(lie, name, { get: tell }); void lie.stack; }\nconst odd: any = new Error('y'); Object.setPrototypeOf(odd, new Proxy(Error.prototype, { get: tell as any, getPrototypeOf: () => { tell(); return null; }, getOwnPropertyDescriptor: () => { tell(); return undefined; } })); void odd.stack;\nObject.defineProperty(Object.prototype, 'value', { configurable: true, get: tell }); const held: any = new Error('z'); Object.defineProperty(held, 'message', { __proto__: null, get: tell } as any); void held.stack; delete (Object.prototype as any).value;\nreturn /(file:|node:|ext:|prelude|evalcell:)/.test(stack);", (Returned,), returned_true, language=_TS),
    Attack("frames-of-an-overflow", "const again = (): any => again() + 1; try { again(); } catch (error) { (Error as any).stackTraceLimit = 10_000; const deep = (n: number): string => n ? deep(n - 1) : new Error().stack!;\nreturn /(file:|node:|ext:|prelude|worker\\.js)/.test((error as Error).stack! + deep(100)); }", (Returned,), returned_true, language=_TS),
)  # fmt: skip

_NAME_OF = "return typeof {0} === 'string' && {0} !== '';"

LEARNS = (
    _learn("size", "return Deno.statSync(loot.file).size > 0;"),
    _learn("link", "return Deno.readLinkSync('/proc/self/exe') !== '';"),
    _learn("real-path", "return Deno.realPathSync(loot.file) !== '';"),
    _learn("directory", "return [...Deno.readDirSync(loot.directory)].some(({ name }) => name === 'treasure.txt');"),
    _learn("here", "return Deno.cwd() !== '';"),
    _learn("program", "return Deno.execPath() !== '';"),
    _learn("host-name", "return Deno.hostname() === loot.host;"),
    _learn("kernel-release", "return Deno.osRelease() === loot.release;"),
    _learn("process", "return Deno.pid.toString() > '0';"),
    _learn("parent", "return Deno.ppid.toString() > '0';"),
    _learn("user", "return Deno.uid()! >= 0;"),
    _learn("memory", "return Deno.systemMemoryInfo().total > 0;"),
    _learn("own-memory", "return Deno.memoryUsage().rss > 0;"),
    _learn("interfaces", "return Deno.networkInterfaces().length > 0;"),
    _learn("load", "return Deno.loadavg().length === 3;"),
    _learn("version", "return Deno.version.deno !== '';"),
    _learn("platform", "return Deno.build.os !== undefined;"),
    _learn("main-module", "return Deno.mainModule.startsWith('file:');"),
    _learn("arguments", "return Deno.args.length > 0;"),
    _learn("navigator", "return navigator.userAgent !== '';"),
    _learn("monotonic-clock", "return performance.now() > 0;"),
    _learn("core", "return typeof (Deno as any)[(Deno as any).internal].core.ops === 'object';"),
    _learn("internal-symbol", "return Reflect.ownKeys(Deno).some((key) => typeof key === 'symbol');", Returned),
    _learn("more-of-deno", "return Reflect.ownKeys(Deno).some((key) => String(key).match(/Command|dlopen|connect|stdout|kill/));", Returned),
    _learn("more-globals", "return ['process', 'Buffer', 'fetch', 'Worker', 'WebAssembly', 'setTimeout', 'queueMicrotask', 'structuredClone', 'require', 'global', 'crypto', 'ShadowRealm'].some((name) => name in globalThis);", Returned),
    _learn("permission", "return (await Deno.permissions.query({ name: 'read' })).state === 'granted';"),
    _learn("permission-asked-for", "return (await Deno.permissions.request({ name: 'read' })).state === 'granted';"),
    _learn("permission-asked-for-at-once", "return Deno.permissions.requestSync({ name: 'run' }).state === 'granted';"),
    _learn("terminal", "return typeof Deno.stdin.isTerminal() === 'boolean';"),
    _learn("name-lookup", "return (await (await import('node:dns/promises')).lookup('localhost')).address !== '';"),
    _learn("webassembly", "return new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])) !== undefined;"),
    _learn("inspector", "return typeof (await import('node:inspector')).url === 'function';"),
    _learn("timer", "return await new Promise((resolve) => setTimeout(() => resolve(true), 1));"),
    _learn("other-realm", "return process.getBuiltinModule('node:vm').runInNewContext('Object') !== Object;"),
    _learn("caller", "return (function (this: any) { return (arguments as any).callee.caller; }) !== null && (function f(): boolean { return Object.getOwnPropertyNames(globalThis).includes('process'); })();", Returned),
    _learn("storage", "localStorage.setItem('x', '1'); return localStorage.getItem('x') === '1';"),
    _learn("cache", "const cache = await caches.open('x'); await cache.put('http://x/', new Response('1')); return await (await cache.match('http://x/'))!.text() === '1';"),
    _learn("broadcast", "const channel = new BroadcastChannel('x'); channel.close(); return true;"),
)  # fmt: skip

WRITES = (
    _write("text", "Deno.writeTextFileSync(loot.target, 'x');"),
    _write("bytes", "Deno.writeFileSync(loot.target, new Uint8Array(1));"),
    _write("text-later", "await Deno.writeTextFile(loot.target, 'x');"),
    _write("append", "Deno.writeTextFileSync(loot.file, 'x', { append: true });"),
    _write("open", "Deno.openSync(loot.target, { write: true, create: true }).close();"),
    _write("create", "Deno.createSync(loot.target).close();"),
    _write("temporary", "Deno.makeTempFileSync({ dir: loot.directory });"),
    _write("truncate", "Deno.truncateSync(loot.file, 0);"),
    _write("mkdir", "Deno.mkdirSync(loot.target);"),
    _write("remove", "Deno.removeSync(loot.file);"),
    _write("remove-all", "Deno.removeSync(loot.directory, { recursive: true });"),
    _write("symlink", "Deno.symlinkSync(loot.file, loot.target);"),
    _write("hard-link", "Deno.linkSync(loot.file, loot.target);"),
    _write("rename", "Deno.renameSync(loot.file, loot.target);"),
    _write("copy", "Deno.copyFileSync(loot.file, loot.target);"),
    _write("chmod", "Deno.chmodSync(loot.file, 0o777);"),
    _write("dot-dot", "Deno.writeTextFileSync(loot.directory + '/../canaries/planted', 'x');"),
    _write("node", f"{_NODE.format('fs')}.writeFileSync(loot.target, 'x');"),
    _write("sqlite", f"const {{ DatabaseSync }} = {_NODE.format('sqlite')}; new DatabaseSync(loot.target).exec('create table x (y)');"),
    _write("sqlite-import", "const { DatabaseSync } = await import('node:sqlite'); new DatabaseSync(loot.target).exec('create table x (y)');"),
    _write("heap-snapshot", f"{_NODE.format('v8')}.writeHeapSnapshot(loot.target); {_NODE.format('fs')}.writeFileSync(loot.target, 'x');"),
)  # fmt: skip

_HERE = "`http://127.0.0.1:${loot.port}/`"

CONNECTIONS = (
    _connect("tcp", "await Deno.connect({ hostname: '127.0.0.1', port: loot.port });"),
    _connect("tcp6", "await Deno.connect({ hostname: '::1', port: loot.port });"),
    _connect("name", "await Deno.connect({ hostname: 'localhost', port: loot.port });"),
    _connect("tls", "await Deno.connectTls({ hostname: '127.0.0.1', port: loot.port }).catch(() => {});"),
    _connect("unix", "await Deno.connect({ transport: 'unix', path: loot.unix } as any);"),
    _connect("udp", f"const socket = {_NODE.format('dgram')}.createSocket('udp4');\nawait new Promise((resolve) => socket.send('hit', loot.port, '127.0.0.1', resolve)); socket.close();"),
    _connect("node", f"await new Promise((resolve) => {_NODE.format('net')}.connect(loot.port, '127.0.0.1', resolve as any));"),
    _connect("node-import", "const net = await import('node:net'); await new Promise((resolve) => net.connect(loot.port, '127.0.0.1', resolve as any));"),
    _connect("node-unix", f"await new Promise((resolve) => {_NODE.format('net')}.connect(loot.unix, resolve as any));"),
    _connect("http", f"await new Promise((resolve) => {_NODE.format('http')}.get({_HERE}, resolve as any));"),
    _connect("fetch", f"await fetch({_HERE});"),
    _connect("web-socket", "const socket = new WebSocket(`ws://127.0.0.1:${loot.port}/`); await new Promise((resolve) => socket.onerror = socket.onopen = resolve);"),
    _connect("event-source", f"const source = new EventSource({_HERE}); await new Promise((resolve) => source.onerror = source.onopen = resolve); source.close();"),
    _connect("name-server", "await Deno.resolveDns('evalcell.test', 'A', { nameServer: { ipAddr: '127.0.0.1', port: loot.port } }).catch(() => {});"),
    _connect("import-http", f"await import({_HERE} + 'x.js').catch((error) => {{ if (!(error instanceof TypeError) || globalThis.Deno.pid === undefined) throw error; }});"),
    _connect("import-https", "await import(`https://127.0.0.1:${loot.port}/x.js`).catch((error) => { if (globalThis.Deno.pid === undefined) throw error; });"),
    _connect("import-npm", "await import('npm:evalcell-canary@1').catch((error) => { if (globalThis.Deno.pid === undefined) throw error; });"),
    _connect("import-jsr", "await import('jsr:@evalcell/canary@1').catch((error) => { if (globalThis.Deno.pid === undefined) throw error; });"),
    _connect("worker", f"const worker = new Worker({_HERE} + 'x.js', {{ type: 'module' }}); await new Promise((resolve) => worker.onerror = (event) => {{ event.preventDefault(); resolve(0); }});"),
    _connect("command", "new Deno.Command('bash', { args: ['-c', `exec 3<>/dev/tcp/127.0.0.1/${loot.port}`] }).outputSync();"),
)  # fmt: skip

PROCESSES = (
    _start("command", "new Deno.Command('touch', { args: [loot.target] }).outputSync();"),
    _start("command-later", "await new Deno.Command('touch', { args: [loot.target] }).output();"),
    _start("spawn", "await new Deno.Command('touch', { args: [loot.target] }).spawn().status;"),
    _start("python", "new Deno.Command(loot.python, { args: ['-c', 'import sys; open(sys.argv[1], \"w\")', loot.target] }).outputSync();"),
    _start("node", f"{_NODE.format('child_process')}.execFileSync('touch', [loot.target]);"),
    _start("node-shell", f"{_NODE.format('child_process')}.execSync(`touch ${{loot.target}}`);"),
    _start("node-import", "(await import('node:child_process')).spawnSync('touch', [loot.target]);"),
    _start("daemon", "new Deno.Command('setsid', { args: ['sh', '-c', `touch ${loot.target}`] }).outputSync();"),
    _start("ffi", "Deno.dlopen('libc.so.6', { mkdir: { parameters: ['buffer', 'u32'], result: 'i32' } }).symbols.mkdir(new TextEncoder().encode(loot.target + '\\0'), 0o700);"),
    _start("worker", "const worker = new Worker('data:text/javascript,' + encodeURIComponent(`Deno.mkdirSync(${JSON.stringify(loot.target)}); postMessage(1)`), { type: 'module' });\nawait new Promise((resolve) => worker.onmessage = resolve); worker.terminate();"),
    Attack("native-library", "Deno.dlopen(loot.native, {});", (Raised,), lambda run: "ELF" in run.error.get("text", "") or "too short" in run.error.get("text", ""), _ABSENT, language=_TS),
    Attack("kill", "Deno.kill(loot.victim, 'SIGKILL');", (Raised,), killed_the_victim, _ABSENT, language=_TS),
    Attack("kill-node", "process.kill(loot.victim, 'SIGKILL');", (Raised,), killed_the_victim, _ABSENT, language=_TS),
    Attack("kill-import", "(await import('node:process')).kill(loot.victim, 'SIGKILL');", (Raised,), killed_the_victim, _ABSENT, language=_TS),
    Attack("kill-command", "new Deno.Command('kill', { args: ['-9', String(loot.victim)] }).outputSync();", (Raised,), killed_the_victim, _ABSENT, language=_TS),
    Attack("signal-handler", "Deno.addSignalListener('SIGTERM', () => {}); Deno.removeSignalListener('SIGTERM', () => {}); return true;", (Raised,), returned_true, _ABSENT, language=_TS),
)  # fmt: skip

INTERPRETER = (*READS, *CODE, *FRAMES, *LEARNS, *WRITES, *CONNECTIONS, *PROCESSES)
