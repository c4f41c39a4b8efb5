// Contexts with the evaluator's module in them, each in the state right after it was executed, and fitted.
import vm from "node:vm";
import prelude from "./prelude.js";

const OPTIONS = { codeGeneration: { strings: false, wasm: false }, microtaskMode: "afterEvaluate" };
const PRELUDE = new vm.Script(`(${prelude})()`, { filename: "evalcell:prelude" });
const SETTLE = new vm.Script("0"); // after it a context has done all that was waiting in it
const { defineProperty } = Object;
const FIXED = { writable: false, configurable: false };
const DIED = '{"kind":"raised","type":"RangeError","message":"Maximum call stack size exceeded"}';

/** Leaves in a context the language, and what we have for it. Before the user's code is there: nothing of his can see us. */
function furnish(realm, machine) {
  delete realm.WebAssembly;
  delete realm.queueMicrotask;
  // With a function of its own under this name, code would be handed objects of this realm: those that describe our frames.
  const { prepareStackTrace } = machine;
  defineProperty(realm.Error, "prepareStackTrace", { value: prepareStackTrace, writable: false, configurable: false });
  defineProperty(realm, "Error", FIXED);
  for (const name of ["console", "Deno"]) {
    const { get, set } = machine[name];
    defineProperty(realm, name, { get, set, configurable: true, enumerable: false });
  }
}

export class Contexts {
  constructor(settings, assets, script, positions) {
    this.settings = settings;
    this.assets = assets;
    this.script = script;
    this.positions = positions;
    this.fittedOn = null;
    this.ahead = null;
  }

  /** Makes a context ahead of the row that it is for, unless there is one. Gives the report of executing the module. */
  prepare() {
    this.ahead ??= this.made();
    return this.ahead.report;
  }

  /** Fits on these rows, here and in every context to come. */
  fit(rows) {
    this.fittedOn = null;
    this.prepare();
    this.fittedOn = rows;
    const context = this.ahead;
    if (context.failure === "") context.report = this.fitted(context);
    return context.report;
  }

  /** A context that nobody has used. Where its module failed, `failure` is the report of that. */
  next() {
    this.prepare();
    const context = this.ahead;
    this.ahead = null;
    return context;
  }

  made() {
    const realm = vm.createContext(vm.constants.DONT_CONTEXTIFY, OPTIONS);
    const machine = PRELUDE.runInContext(realm);
    furnish(realm, machine);
    for (const [name, content, base64] of this.assets) machine.ship(name, content, base64);
    const { filename, seed, result_bytes, stdout_bytes, stderr_bytes, environment } = this.settings;
    machine.begin(
      this.script.runInContext(realm),
      filename,
      seed,
      result_bytes,
      stdout_bytes,
      stderr_bytes,
      environment,
    );
    const context = { realm, machine, report: "", failure: "" };
    context.report = this.call(context, "load", "");
    if (!context.report.startsWith('{"value"')) context.failure = context.report;
    else if (this.fittedOn !== null) this.fitted(context);
    return context;
  }

  fitted(context) {
    const report = this.call(context, "fit", this.fittedOn);
    if (!report.startsWith('{"value"')) context.failure = report;
    return report;
  }

  /** Calls a hook and does all that this leaves waiting. Gives the report of it, a string whatever happens. */
  call({ realm, machine }, action, argument, rows = 0) {
    try {
      machine.call(action, argument, rows);
      SETTLE.runInContext(realm);
      const report = machine.settled();
      return typeof report === "string" ? this.placed(report) : DIED;
    } catch {
      return DIED; // nothing but an overflow gets here, and what was thrown is not to be touched
    }
  }

  /** With positions in the user's own source, where what runs is not that to the letter. */
  placed(report) {
    if (this.positions.lines === null || !report.startsWith('{"kind":"raised"')) return report;
    try {
      const made = JSON.parse(report);
      made.traceback = String(made.traceback).replace(
        /^( {4}at .*:)(\d+):(\d+)(?=\)?$)/gm,
        (whole, before, line, column) =>
          before.endsWith(`${this.settings.filename}:`)
            ? before + this.positions.original(Number(line), Number(column)).join(":")
            : whole,
      );
      return JSON.stringify(made);
    } catch {
      return report;
    }
  }
}
//# sourceURL=evalcell:contexts
