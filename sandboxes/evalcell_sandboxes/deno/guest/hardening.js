// Leaves in this realm as little as can be for code that has found a way into it.
import vm from "node:vm";

/** Everything that the language has is frozen, and what Deno has added cannot be reached by name. */
export function harden() {
  const language = new Set(vm.runInNewContext("Object.getOwnPropertyNames(globalThis)"));
  const seen = new Set([globalThis]);
  for (const value of unnamed()) freeze(value, seen);
  for (const name of Object.getOwnPropertyNames(globalThis)) {
    if (language.has(name) && !NOT_OF_IT.has(name)) freeze(globalThis[name], seen);
    // The engine has a queueMicrotask of its own beneath Deno's: what is deleted once may still be there.
    else while (Object.hasOwn(globalThis, name)) delete globalThis[name];
  }
  Object.freeze(globalThis);
}

const NOT_OF_IT = new Set(["WebAssembly", "queueMicrotask", "console"]);
/** What the language has and what no name leads to: prototypes of iterators, and of functions that are not plain ones. */
function unnamed() {
  const text = "";
  const iterators = [
    [].values(),
    new Map().keys(),
    new Set().keys(),
    text[Symbol.iterator](),
    text.matchAll(/x/g),
    [].values().map(Number),
  ];
  const functions = [function* () {}, async function* () {}, async () => {}, (async function* () {})()];
  return [
    ...iterators,
    ...functions,
    Iterator.from({ next() {} }),
    new Intl.Segmenter().segment(text)[Symbol.iterator](),
  ];
}

const isHolder = (value) => (typeof value === "object" && value !== null) || typeof value === "function";

function freeze(value, seen) {
  const waiting = [value].filter(isHolder);
  while (waiting.length > 0) {
    const next = waiting.pop();
    if (seen.has(next) || ArrayBuffer.isView(next)) continue;
    seen.add(next);
    try {
      Object.freeze(next);
    } catch {
      continue; // some of the host's objects cannot be
    }
    const prototype = Object.getPrototypeOf(next);
    if (prototype !== null) waiting.push(prototype);
    for (const descriptor of Object.values(Object.getOwnPropertyDescriptors(next))) {
      for (const part of [descriptor.value, descriptor.get, descriptor.set]) if (isHolder(part)) waiting.push(part);
    }
  }
}
//# sourceURL=evalcell:hardening
