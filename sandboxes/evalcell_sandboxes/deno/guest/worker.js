// The guest: one process for one evaluator, speaking lines with the host. User code runs in contexts that hold nothing but
// the language, and is only ever handed text. Hostile code may still find a way into this realm: what it finds here is
// frozen, has no permissions, and is the last realm before the walls of the operating system.
//
// From the host come frames: a length, a command, a body. What goes back are lines. Under `row` isolation an empty line
// says that a fresh context is ready and that a row's time begins; any other line is the report of a call.
import vm from "node:vm";
import { compiled } from "./compiling.js";
import { describe } from "./describing.js";
import { harden } from "./hardening.js";
import { Contexts } from "./contexts.js";

const { stdin, stdout } = Deno;
const read = stdin.readSync.bind(stdin);
const write = stdout.writeSync.bind(stdout);
const now = performance.now.bind(performance);
const encoder = new TextEncoder();
const decoder = new TextDecoder();
const strictly = new TextDecoder("utf-8", { fatal: true });

// -- talking ------------------------------------------------------------------------------------------------------------
function say(line) {
  writeAll(encoder.encode(line + "\n"));
}

function writeAll(bytes) {
  for (let at = 0; at < bytes.length;) at += write(at ? bytes.subarray(at) : bytes);
}

const READY = new Uint8Array([10]);

/** So many bytes; null when the host is gone. */
function take(size) {
  const bytes = new Uint8Array(size);
  for (let at = 0; at < size;) {
    const count = read(bytes.subarray(at));
    if (count === null) return null;
    at += count;
  }
  return bytes;
}

/** A report with the time that its call took. A report that is no line would be several, or none. */
function timed(report, began) {
  const seconds = (now() - began) / 1000;
  if (typeof report !== "string" || report[0] !== "{" || report.includes("\n")) {
    return `{"seconds":${seconds},"kind":"invalid","message":"the code made up a report of its own"}`;
  }
  return `{"seconds":${seconds},${report.slice(1)}`;
}

// -- the evaluator ------------------------------------------------------------------------------------------------------
const assets = [];
let settings = null;
let contexts = null;
let shared = null;
let batches = false;

function load(source) {
  let script;
  try {
    const { code, positions } = compiled(source);
    script = new vm.Script(code, { filename: settings.filename, lineOffset: -1 });
    contexts = new Contexts(settings, assets, script, positions);
  } catch (error) {
    return JSON.stringify({
      kind: "raised",
      type: "SyntaxError",
      message: String(error?.message),
      traceback: placeOf(error),
    });
  }
  const report = contexts.prepare();
  batches = !settings.fresh && report.startsWith('{"value":true');
  return report;
}

/** As a stack would have it, where it is known: the engine does not say where something is that it alone objects to. */
function placeOf({ message, line, column }) {
  return line ? `SyntaxError: ${message}\n    at ${settings.filename}:${line}:${column}` : "";
}

function fit(rows) {
  return contexts.fit(rows);
}

function run(rows) {
  for (const row of rows) {
    const context = settings.fresh ? contexts.next() : (shared ??= contexts.next());
    if (context.failure !== "") {
      shared = null;
      say(timed(context.failure, now()));
      continue;
    }
    if (settings.fresh) writeAll(READY);
    const began = now();
    say(timed(contexts.call(context, "evaluate", row), began));
  }
  if (settings.fresh) contexts.prepare(); // while the host is busy with what it was told
}

/** Has all rows done in one call. Where that fails as a whole, each has to show whether it is the one. */
function runBatch(rows) {
  const context = (shared ??= contexts.next());
  const began = now();
  const report = contexts.call(context, "evaluate_batch", rows.join("\n"), rows.length);
  const lines = report.startsWith('{"value":') ? linesOf(report, rows.length) : null;
  if (lines !== null) {
    for (const line of lines) say(timed(line, now() - (now() - began) / rows.length));
  } else if (rows.length === 1) {
    say(timed(report, began));
  } else {
    for (const row of rows) runBatch([row]);
  }
}

function linesOf(report, count) {
  try {
    const { value, stdout = "", stderr = "" } = JSON.parse(report);
    const lines = value.split("\n");
    if (lines.length !== count) return null;
    // What was printed nobody knows whose it is; the first row carries it.
    if (stdout || stderr) {
      lines[0] = `${lines[0].slice(0, -1)},"stdout":${JSON.stringify(stdout)},"stderr":${JSON.stringify(stderr)}}`;
    }
    return lines;
  } catch {
    return null;
  }
}

function aggregate(results) {
  shared = null;
  const context = contexts.next();
  return context.failure || contexts.call(context, "aggregate", results);
}

// -- commands -----------------------------------------------------------------------------------------------------------
const COMMANDS = {
  __proto__: null,
  S: (body) => {
    settings = JSON.parse(decoder.decode(body));
  },
  A: (body) => {
    const end = body.indexOf(10);
    const bytes = body.subarray(end + 1);
    assets.push([decoder.decode(body.subarray(0, end)), textOf(bytes), bytes.toBase64()]);
  },
  D: (body) => say(describe(decoder.decode(body))),
  L: (body) => answer(load, body),
  F: (body) => answer(fit, body),
  R: (body) => {
    const rows = decoder.decode(body).split("\n");
    if (batches) runBatch(rows);
    else run(rows);
  },
  G: (body) => answer(aggregate, body),
};

function answer(act, body) {
  const began = now();
  say(timed(act(decoder.decode(body)), began));
}

/** The text of a file, or undefined where it is none. */
function textOf(bytes) {
  try {
    return strictly.decode(bytes);
  } catch {
    return undefined;
  }
}

harden();
say(JSON.stringify({ ready: true }));
for (let head = take(5); head !== null; head = take(5)) {
  const size = new DataView(head.buffer).getUint32(0);
  const body = take(size);
  if (body === null) break;
  COMMANDS[String.fromCharCode(head[4])](body);
}
//# sourceURL=evalcell:worker
