// What every context has before the user's code is there. All here belongs to the context: code of the user's that bends
// it bends its own report. Only strings and numbers come in, and only strings go out.
//
// This is run for every row, and what a context does for the first time is slow. So it does little: no classes, nothing
// defined that is seldom wanted, and what can be done from outside is done there.
//
// It is handed over as text, so it may use nothing from outside itself.
export default function () {
  "use strict";

  const { parse, stringify } = JSON;
  const { isArray } = Array;
  const { getOwnPropertyDescriptor, getPrototypeOf, hasOwn, keys } = Object;
  const { apply, defineProperty } = Reflect;
  const { isFinite } = Number;
  const { imul } = Math;
  const { toString: kindOf } = Object.prototype;
  const { slice, split, startsWith, includes, charCodeAt, isWellFormed, toWellFormed } = String.prototype;
  const { join } = Array.prototype;
  const { then } = Promise.prototype;
  const OwnError = Error;
  const OwnRangeError = RangeError;
  const OwnPromise = Promise;
  const text = String;

  const MOST_LEVELS = 64;
  const MESSAGE_CHARACTERS = 4_000;
  const TRACE_CHARACTERS = 16_000;

  // -- results --------------------------------------------------------------------------------------------------------
  /** What is thrown for a value that cannot be carried out: only so made things are that. */
  let unusable = null;

  function refused(what) {
    unusable = { what, where: "" };
    return unusable;
  }

  function encoded(value, level) {
    switch (typeof value) {
      case "number":
        if (isFinite(value)) return text(value);
        throw refused(value !== value ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
      case "boolean":
        return value ? "true" : "false";
      case "string":
        checkSize(value);
        return encodedText(value);
      case "object":
        if (value === null) return "null";
        if (level === 0) throw refused(`a value that is nested more than ${MOST_LEVELS} levels deep`);
        return isArray(value) ? encodedList(value, level - 1) : encodedObject(value, level - 1);
      case "bigint":
        throw refused("a BigInt: make it a number, with Number(...)");
      case "undefined":
        throw refused("undefined");
      default:
        throw refused(typeof value === "function" ? "a function" : "a symbol");
    }
  }

  /**
   * Half a character, which no encoding can hold, becomes a replacement character, as it does wherever text leaves
   * JavaScript: cutting a string makes one soon, and even the engine's own messages hold some.
   */
  function encodedText(value) {
    const made = stringify(value);
    return made.length > value.length + 2 && !apply(isWellFormed, value, [])
      ? stringify(apply(toWellFormed, value, []))
      : made;
  }

  function encodedList(value, level) {
    let made = "[";
    for (let at = 0; at < value.length; at++) {
      if (at) made += ",";
      made += within(value[at], `[${at}]`, level);
      checkSize(made);
    }
    return made + "]";
  }

  function encodedObject(value, level) {
    const what = kind(value);
    if (what !== "Object") throw refused(article(what) + howElse(what));
    let made = "{";
    const names = keys(value);
    for (let at = 0; at < names.length; at++) {
      if (at) made += ",";
      checkSize(names[at]);
      made += encodedText(names[at]) + ":" + within(value[names[at]], names[at], level);
      checkSize(made);
    }
    return made + "}";
  }

  function within(value, name, level) {
    if (typeof value === "number" && isFinite(value)) return text(value);
    try {
      return encoded(value, level);
    } catch (error) {
      if (error === unusable) error.where = error.where ? prefixed(name, error.where) : name;
      throw error;
    }
  }

  const prefixed = (name, rest) => (rest[0] === "[" ? name + rest : `${name}.${rest}`);
  const article = (what) => (apply(includes, "AEIO", [what[0]]) ? "an " : "a ") + what;

  function howElse(what) {
    if (what === "Date") return ": make it text, with toISOString()";
    if (what === "Map") return ": make it an object, with Object.fromEntries(...)";
    if (what === "Set") return ": make it a list, with [...it]";
    return what === "Promise" ? ": await it" : "";
  }

  const PLAIN = "Object";

  /** What an object is called, "Object" where it holds no more than can be seen of it. */
  function kind(value) {
    const prototype = getPrototypeOf(value);
    if (prototype === Object.prototype || prototype === null) return PLAIN;
    const tag = apply(kindOf, value, []);
    return tag === "[object Object]" ? PLAIN : apply(slice, tag, [8, -1]);
  }

  let mostResult = 0;

  function checkSize(made) {
    if (made.length > mostResult) {
      throw refused(`more than ${mostResult} bytes of JSON, which is the limit (result_bytes)`);
    }
  }

  // -- prints ---------------------------------------------------------------------------------------------------------
  const stdout = { most: 0, bytes: 0, kept: "", dropped: 0 };
  const stderr = { most: 0, bytes: 0, kept: "", dropped: 0 };

  function write(stream, printed) {
    const size = utf8Length(printed);
    const room = stream.most - stream.bytes;
    if (size <= room) {
      stream.kept += printed;
      stream.bytes += size;
      return;
    }
    const fits = fitting(printed, room);
    stream.kept += fits;
    stream.bytes += utf8Length(fits);
    stream.dropped += size - utf8Length(fits);
  }

  /** What was written since the last call. */
  function taken(stream) {
    let found = stream.kept;
    if (stream.dropped) found += `\n[${stream.dropped} more bytes were dropped: the limit is ${stream.most}]`;
    stream.kept = "";
    stream.bytes = stream.dropped = 0;
    return found;
  }

  function utf8Length(printed) {
    let size = printed.length;
    for (let at = 0; at < printed.length; at++) {
      const code = apply(charCodeAt, printed, [at]);
      if (code > 0x7ff) size += code >= 0xd800 && code <= 0xdfff ? 1 : 2;
      else if (code > 0x7f) size += 1;
    }
    return size;
  }

  /** As much of the beginning as has so many bytes. */
  function fitting(printed, room) {
    let end = 0;
    for (let used = 0; end < printed.length; end++) {
      const code = apply(charCodeAt, printed, [end]);
      used += code < 0x80 ? 1 : code < 0x800 ? 2 : code >= 0xd800 && code <= 0xdfff ? 2 : 3;
      if (used > room) break;
    }
    if (apply(charCodeAt, printed, [end]) >> 10 === 0x37) end -= 1; // half a character: the other half had room
    return apply(slice, printed, [0, end]);
  }

  function makeConsole() {
    let indent = "";
    const to = (stream) => (...things) => {
      const shown = shownAll(things);
      write(stream, (indent ? indent + shown.replaceAll("\n", "\n" + indent) : shown) + "\n");
    };
    const counts = { __proto__: null };
    const out = to(stdout);
    const err = to(stderr);
    return {
      log: out,
      info: out,
      debug: out,
      dir: (thing) => out(thing),
      dirxml: out,
      table: (thing) => out(thing),
      warn: err,
      error: err,
      trace: (...things) => {
        const said = shownAll(things);
        err(apply(join, [said ? `Trace: ${said}` : "Trace", ...frames(new OwnError().stack)], ["\n"]));
      },
      assert: (holds, ...things) => {
        if (!holds) err("Assertion failed" + (things.length ? ":" : ""), ...things);
      },
      group: (...things) => {
        if (things.length) out(...things);
        indent += "  ";
      },
      groupCollapsed: (...things) => {
        if (things.length) out(...things);
        indent += "  ";
      },
      groupEnd: () => {
        indent = apply(slice, indent, [2]);
      },
      count: (name = "default") => {
        counts[name] = (counts[name] ?? 0) + 1;
        out(`${name}: ${counts[name]}`);
      },
      countReset: (name = "default") => {
        delete counts[name];
      },
      // There is no clock here that is worth showing.
      time: () => {},
      timeLog: () => {},
      timeEnd: () => {},
      timeStamp: () => {},
      clear: () => {},
      profile: () => {},
      profileEnd: () => {},
    };
  }

  function shownAll(things) {
    let made = "";
    for (let at = 0; at < things.length; at++) {
      made += (at ? " " : "") + (typeof things[at] === "string" ? things[at] : shown(things[at], 3, []));
    }
    return made;
  }

  /** A value as a console shows it. */
  function shown(value, levels, around) {
    if (typeof value === "string") return stringify(value);
    if (typeof value === "bigint") return `${value}n`;
    if (typeof value === "function") return `[Function: ${value.name || "(anonymous)"}]`;
    if (typeof value === "number") return value === 0 && 1 / value < 0 ? "-0" : text(value);
    if (typeof value !== "object" || value === null) return text(value);
    if (around.includes(value)) return "[Circular]";
    if (value instanceof OwnError) return apply(join, [headline(value), ...frames(value.stack)], ["\n"]);
    const what = kind(value);
    if (what === "Date") return text(value);
    if (what === "RegExp") return text(value);
    if (levels === 0) return isArray(value) ? "[Array]" : `[${what}]`;
    const inside = (item) => shown(item, levels - 1, [...around, value]);
    const listed = (open, items, close) => (items.length ? `${open} ${items.join(", ")} ${close}` : open + close);
    if (isArray(value)) return listed("[", value.slice(0, 100).map(inside).concat(more(value.length)), "]");
    if (what === "Map") {
      return listed(
        `Map(${value.size}) {`,
        [...value].slice(0, 100).map(([k, v]) => `${inside(k)} => ${inside(v)}`),
        "}",
      );
    }
    if (what === "Set") return listed(`Set(${value.size}) {`, [...value].slice(0, 100).map(inside), "}");
    const names = keys(value);
    const items = names.slice(0, 100).map((name) =>
      `${/^[A-Za-z_$][\w$]*$/.test(name) ? name : stringify(name)}: ${inside(value[name])}`
    );
    const name = value.constructor?.name;
    const prefix = what !== PLAIN ? `${what} ` : name && name !== "Object" ? `${name} ` : "";
    return prefix + listed("{", items.concat(more(names.length)), "}");
  }

  const more = (count) => (count > 100 ? [`... ${count - 100} more`] : []);

  // -- errors ---------------------------------------------------------------------------------------------------------
  let filename = "";

  /**
   * What `stack` is of an error: the user's own frames, and nothing of ours. What describes frames belongs to those who
   * call this context. So it must not be seen by anybody else, or passed to anything that may be bent. No code of the
   * user's may run meanwhile: to that, errors would show all their frames.
   */
  function prepareStackTrace(error, sites) {
    const name = heldText(error, "name") || builtinName(error);
    const message = cut(heldText(error, "message"), MESSAGE_CHARACTERS);
    let made = message ? `${name}: ${message}` : name;
    for (let at = 0; at < sites.length; at++) {
      const site = sites[at];
      if (site.getFileName() !== filename) continue;
      const where = `${filename}:${site.getLineNumber()}:${site.getColumnNumber()}`;
      const called = site.getFunctionName();
      const by = called === "$default" ? "default" : called; // which is what it is exported as
      made += by ? `\n    at ${by} (${where})` : `\n    at ${where}`;
    }
    return made;
  }

  /** The text that an object holds itself, and not by a getter. */
  function heldText(thing, name) {
    const held = getOwnPropertyDescriptor(thing, name);
    return held !== undefined && hasOwn(held, "value") && typeof held.value === "string" ? held.value : "";
  }

  const BUILTIN_ERRORS = [AggregateError, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError];
  const builtin = BUILTIN_ERRORS.map((made) => ({ name: made.name, prototype: made.prototype }));

  function builtinName(error) {
    const prototype = getPrototypeOf(error);
    for (let at = 0; at < builtin.length; at++) if (builtin[at].prototype === prototype) return builtin[at].name;
    return "Error";
  }

  /** The frames of a stack that lie in the user's own file. */
  function frames(stack) {
    const found = [];
    const lines = typeof stack === "string" ? apply(split, stack, ["\n"]) : [];
    for (let at = 0; at < lines.length; at++) {
      if (apply(startsWith, lines[at], ["    at "]) && apply(includes, lines[at], [filename + ":"])) {
        found[found.length] = lines[at];
      }
    }
    return found;
  }

  const safely = (make, otherwise) => {
    try {
      return text(make());
    } catch {
      return otherwise;
    }
  };

  const cut = (value, most) => (value.length > most ? apply(slice, value, [0, most]) : value);

  /** What an error is called: by its class where that has not given it a name. */
  function nameOf(error) {
    const { name } = error;
    return (name === "Error" && error.constructor?.name) || name;
  }

  function headline(error) {
    const name = safely(() => nameOf(error), "Error");
    const message = cut(safely(() => error.message, ""), MESSAGE_CHARACTERS);
    return message ? `${name}: ${message}` : name;
  }

  /** The beginning of a report of what was thrown. It may be anything, and lie. */
  function raised(error) {
    const isError = typeof error === "object" && error !== null && error instanceof OwnError;
    const name = isError ? safely(() => nameOf(error), "Error") : "Error";
    const message = isError
      ? safely(() => error.message, "(the error's text could not be made)")
      : `threw ${safely(() => shown(error, 1, []), "something that cannot be shown")}, which is no Error`;
    if (isError && error instanceof OwnRangeError && message === "Array buffer allocation failed") {
      return '{"kind":"exceeded","message":"the evaluator ran out of memory"';
    }
    const where = isError ? safely(() => apply(join, [headline(error), ...chain(error)], ["\n"]), "") : "";
    return `{"kind":"raised","type":${encodedText(cut(name, 200))},"message":${
      encodedText(cut(message, MESSAGE_CHARACTERS))
    },` +
      `"traceback":${encodedText(cut(where, TRACE_CHARACTERS))}`;
  }

  /** The user's frames of an error and of what caused it. */
  function chain(error) {
    const found = frames(error.stack);
    for (let depth = 0; depth < 5 && error.cause instanceof OwnError; depth++) {
      error = error.cause;
      found[found.length] = `Caused by: ${headline(error)}`;
      const own = frames(error.stack);
      for (let at = 0; at < own.length; at++) found[found.length] = own[at];
    }
    return found;
  }

  // -- chance ---------------------------------------------------------------------------------------------------------
  let seed = "";
  let due = "";
  let state = null;

  /** Draws by the seed of the run and by what the call was given, which is looked at only if something is drawn. */
  Math.random = function random() {
    state ??= seeded(`${seed}\n${due}`);
    return drawn(state) * 2 ** -32 + (drawn(state) >>> 11) * 2 ** -53;
  };

  function seeded(words) {
    const made = [0x9e3779b9, 0x243f6a88, 0xb7e15162, words.length];
    for (let at = 0; at < words.length; at++) {
      const code = apply(charCodeAt, words, [at]);
      for (let each = 0; each < 4; each++) {
        made[each] = imul(made[each] ^ code, 0x01000193 + 2 * each);
        made[each] ^= made[(each + 1) & 3] >>> 13;
      }
    }
    for (let warm = 0; warm < 16; warm++) drawn(made);
    return made;
  }

  /** sfc32: the next 32 bits. */
  function drawn(from) {
    const sum = (from[0] + from[1] + from[3]++) | 0;
    from[0] = from[1] ^ (from[1] >>> 9);
    from[1] = (from[2] + (from[2] << 3)) | 0;
    from[2] = (from[2] << 21) | (from[2] >>> 11);
    from[2] = (from[2] + sum) | 0;
    return sum >>> 0;
  }

  // -- files and values that the evaluator was given ------------------------------------------------------------------
  const HOME = "/evaluator";
  const shipped = { __proto__: null };
  let environment = "{}";

  function makeDeno() {
    const given = parse(environment);
    class NotFound extends OwnError {
      name = "NotFound";
    }
    class PermissionDenied extends OwnError {
      name = "PermissionDenied";
    }

    function found(path) {
      const parts = [];
      const whole = text(path);
      for (const part of (whole[0] === "/" ? whole : `${HOME}/${whole}`).split("/")) {
        if (part === "..") parts.pop();
        else if (part !== "" && part !== ".") parts.push(part);
      }
      const place = "/" + parts.join("/");
      const file = place.startsWith(HOME + "/") ? shipped[place.slice(HOME.length + 1)] : undefined;
      if (file === undefined) {
        throw new NotFound(`there is no asset ${stringify(whole)}: name it in the block, as assets = [...]`);
      }
      return file;
    }

    const readFileSync = (path) => Uint8Array.fromBase64(found(path).base64);
    const readTextFileSync = (path) => {
      const file = found(path);
      if (file.content === undefined) throw new TypeError(`${stringify(text(path))} is not UTF-8 text`);
      return file.content;
    };
    const refuse = (name) => () => {
      throw new PermissionDenied(`${name}: nothing can be changed in the sandbox`);
    };
    return {
      readTextFileSync,
      readFileSync,
      readTextFile: async (path) => readTextFileSync(path),
      readFile: async (path) => readFileSync(path),
      env: {
        get: (name) => (Object.hasOwn(given, name) ? given[name] : undefined),
        has: (name) => Object.hasOwn(given, name),
        toObject: () => ({ ...given }),
        set: refuse("env.set"),
        delete: refuse("env.delete"),
      },
      errors: { NotFound, PermissionDenied },
    };
  }

  /** The getter and the setter of something that is made when it is asked for: most rows never do. */
  function later(name, make) {
    let made;
    const become = (value) => {
      const property = { __proto__: null, value, writable: true, configurable: true, enumerable: false };
      defineProperty(globalThis, name, property); // which may be frozen
    };
    return {
      get() {
        made ??= make();
        become(made);
        return made;
      },
      set: become,
    };
  }

  // -- calls ----------------------------------------------------------------------------------------------------------
  let factory = null;
  let hooks = null;
  let pending = null;

  function done(action, argument) {
    if (action === "load") return factory();
    const { evaluate, evaluate_batch, fit, aggregate } = hooks; // called as a module's functions are: `this` is nothing
    switch (action) {
      case "evaluate":
        return evaluate(parse(argument));
      case "evaluate_batch":
        return evaluate_batch(readAll(argument));
      case "fit":
        return fit(readable(argument));
      default:
        return aggregate(parse(argument));
    }
  }

  const readAll = (rows) => apply(split, rows, ["\n"]).map((row) => parse(row));

  /** Those rows to fit on that can be read; the others fail when their turn comes. */
  function readable(rows) {
    const found = [];
    for (const row of apply(split, rows, ["\n"])) {
      try {
        found.push(parse(row));
      } catch {
        // its own error then
      }
    }
    return found;
  }

  /** What came of an action, as the beginning of a report. A batch has a report for each of its rows. */
  function reported(action, value, rows) {
    if (action === "load") {
      hooks = value;
      return '{"value":' + (typeof hooks.evaluate_batch === "function" ? "true" : "false");
    }
    if (action === "fit") return '{"value":null';
    if (action !== "evaluate_batch") return '{"value":' + resultOf(action, value);
    if (!isArray(value) || value.length !== rows) {
      return invalid("evaluate_batch must return a list with one result for each row");
    }
    const reports = [];
    for (let at = 0; at < rows; at++) {
      try {
        reports[at] = '{"value":' + resultOf("evaluate_batch", value[at]) + "}";
      } catch (error) {
        reports[at] = failed(action, error) + "}";
      }
    }
    return '{"value":' + stringify(apply(join, reports, ["\n"]));
  }

  function resultOf(action, value) {
    const made = encoded(value, MOST_LEVELS);
    checkSize(made);
    return made;
  }

  const invalid = (message) => `{"kind":"invalid","message":${encodedText(message)}`;

  function failed(action, error) {
    if (error === null || error !== unusable) return raised(error);
    const what = `${action} returned ${error.what}` + (error.where ? `, at '${cut(error.where, 200)}'` : "");
    return invalid(
      action === "evaluate" && error.what === "undefined" && !error.where ? `${what}: did you forget return?` : what,
    );
  }

  function finished(body) {
    if (stdout.kept === "" && stderr.kept === "" && !stdout.dropped && !stderr.dropped) return body + "}";
    return `${body},"stdout":${encodedText(taken(stdout))},"stderr":${encodedText(taken(stderr))}}`;
  }

  /** Does something. `settled` gives the report of it, once the context has done all that was waiting in it. */
  function call(action, argument, rows) {
    due = action === "load" || action === "fit" ? "" : argument;
    state = null;
    const waiting = (pending = { action, rows, done: false, body: "" });
    try {
      const value = done(action, argument);
      if (typeof value === "object" && value !== null && isThenable(value)) return watch(waiting, value);
      waiting.body = reported(action, value, rows);
    } catch (error) {
      waiting.body = safely(
        () => failed(action, error),
        '{"kind":"raised","type":"Error","message":"(what was thrown cannot be shown)"',
      );
    }
    waiting.done = true;
  }

  function isThenable(value) {
    return value instanceof OwnPromise || typeof value.then === "function";
  }

  function watch(waiting, value) {
    const ending = (make) => (result) => {
      if (waiting.done) return;
      waiting.done = true;
      try {
        waiting.body = make(result);
      } catch (error) {
        waiting.body = failed(waiting.action, error);
      }
    };
    const given = ending((result) => reported(waiting.action, result, waiting.rows));
    const thrown = ending((error) => failed(waiting.action, error));
    // Through a promise of our own: a lying `then` is called later, and once.
    apply(then, OwnPromise.resolve(value), [given, thrown]);
  }

  function settled() {
    const waiting = pending;
    pending = null;
    if (waiting === null) return "";
    return finished(
      waiting.done ? waiting.body : invalid(`${promised(waiting.action)} that nothing in the sandbox will ever settle`),
    );
  }

  const promised = (action) =>
    action === "load" ? "the module awaits something at its top level" : `${action} returned a promise`;

  return {
    ship: (name, content, base64) => {
      shipped[name] = { content, base64 };
    },
    begin: (made, name, run, resultBytes, stdoutBytes, stderrBytes, granted) => {
      factory = made;
      filename = name;
      seed = run;
      mostResult = resultBytes;
      stdout.most = stdoutBytes;
      stderr.most = stderrBytes;
      environment = granted;
    },
    prepareStackTrace,
    console: later("console", makeConsole),
    Deno: later("Deno", makeDeno),
    call,
    settled,
  };
}
