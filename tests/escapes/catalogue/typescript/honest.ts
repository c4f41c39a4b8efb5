// The module that attacks in TypeScript stand in. It is honest to every row that names no attack.
type Loot = Record<string, any>;
interface EvaluatorParams {
  nonce: string;
  attack?: string;
  loot?: Loot;
}

const SEEN: string[] = [];
const CACHE = new Map<string, string[]>();
const NOTES = new WeakMap<object, string[]>();
const LAST: { weak?: WeakRef<{ nonce: string }>; strong?: { nonce: string } } = {};
const REGISTRY = new FinalizationRegistry<string>((nonce) => SEEN.push(nonce));
const closure = (() => {
  const kept: string[] = [];
  return { keep: (nonce: string) => kept.push(nonce), kept: () => kept };
})();

class Kept {
  static nonces: string[] = [];
}

function tagged(parts: TemplateStringsArray): any {
  return parts;
}

function template(): any {
  return tagged`the same object every time`;
}

/** Leaves the row's nonce wherever honest code may leave something of its row. */
function remember(nonce: string): void {
  const world = globalThis as any;
  SEEN.push(nonce);
  Kept.nonces.push(nonce);
  CACHE.set(nonce, [nonce]);
  NOTES.set(template(), [...(NOTES.get(template()) ?? []), nonce]);
  LAST.strong = { nonce };
  LAST.weak = new WeakRef(LAST.strong);
  REGISTRY.register({ nonce }, nonce);
  closure.keep(nonce);
  world.row = nonce;
  world[Symbol.for("row")] = nonce;
  Object.defineProperty(Object.prototype, "rowOfPrototype", { value: nonce, configurable: true, writable: true });
  (Array as any).row = nonce;
  (Math as any).row = nonce;
  (Intl as any).row = nonce;
  (honest as any).row = nonce;
  console.group();
  console.groupEnd();
  (console as any).row = nonce;
  try {
    world.localStorage?.setItem("row", nonce);
  } catch {
    // there is none
  }
  console.log("honest", nonce);
}

/** What a row finds around it, as far as it can be bent. */
function world(): Record<string, unknown> {
  const names = (thing: any) =>
    Reflect.ownKeys(thing).map(String).filter((name) => !["row", "rowOfPrototype", "Symbol(row)"].includes(name)).sort()
      .join();
  return {
    globals: names(globalThis),
    object: names(Object) + names(Object.prototype),
    array: names(Array) + names(Array.prototype),
    functions: names(Function.prototype),
    promise: names(Promise) + names(Promise.prototype),
    errors: [Error.stackTraceLimit, names(Error.prototype)].join(),
    frozen: [globalThis, Object.prototype, Array.prototype, JSON, Math].map(Object.isExtensible).join(),
    prototypes: [Array.prototype, Function.prototype, Map.prototype, Error.prototype].map((each) =>
      Object.getPrototypeOf(each) === Object.prototype
    ).join(),
    locale: new Intl.NumberFormat().resolvedOptions().locale,
    zone: new Intl.DateTimeFormat().resolvedOptions().timeZone,
  };
}

class Point {
  constructor(public x: number, public y: number) {}
  toJSON() {
    return { x: this.x };
  }
}

/** The right value of a row, made with what an attack may have bent. */
function honest(nonce: string): unknown {
  remember(nonce);
  const now = world();
  const [first, ...rest] = [3, 1, 2].sort();
  const made = new Map([["a", 1]]).set("b", 2);
  const value = {
    nonce,
    length: nonce.length,
    text: String(12.5) + [1, [2]].toString() + "abc".replace("b", "-").toUpperCase().padEnd(5, "."),
    json: JSON.parse(JSON.stringify({ a: [1, null], b: new Point(1, 2) })),
    regex: "a1b2".replace(/[^0-9]/g, ""),
    split: "a,b".split(",").map((each) => each.trim()).concat("c").join("|"),
    spread: { first, rest, size: made.size, pairs: [...made], entries: Object.entries({ x: 1 }) },
    numbers: [
      Math.floor(2.5),
      Math.round(2.5),
      Math.max(1, 3),
      Number("0x10"),
      parseInt("12px"),
      (2.675).toFixed(2),
      0.1 + 0.2,
    ],
    called: [
      Math.min.apply(null, [1, 2]),
      (function (this: any) {
        return this.k;
      }).call({ k: 1 }),
      Reflect.apply(Math.abs, null, [-1]),
    ],
    date: new Date(Date.UTC(2024, 1, 29)).toISOString(),
    clock: Date.now() > 0,
    own: Object.keys(new Point(1, 2)),
    set: [...new Set([1, 1, 2])],
    symbol: Symbol.for("x") === Symbol.for("x"),
    bent: Object.keys(now).filter((name) => now[name] !== WORLD[name]).sort(),
  };
  /nonce-([0-9a-f]+)/.exec(nonce); // the last match of all, which the engine keeps
  return value;
}

/** Every nonce of a row in a text but the attack's own. */
function noncesIn(...things: any[]): string[] {
  const found = things.flatMap((thing) =>
    String(typeof thing === "string" ? thing : JSON.stringify(thing)).match(/nonce-[0-9a-f]{16}/g) ?? []
  );
  return [...new Set(found)].filter((nonce) => nonce !== OWN).sort();
}

let OWN = "";
const ATTACKS: Record<string, (nonce: string, loot: Loot) => unknown> = {};

export function evaluate({ nonce, attack, loot }: EvaluatorParams): unknown {
  OWN = nonce;
  return attack === undefined ? honest(nonce) : ATTACKS[attack](nonce, loot!);
}

const WORLD = world();
