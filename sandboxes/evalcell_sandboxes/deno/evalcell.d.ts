// What an evaluator in TypeScript is called with, what it may return, and what it finds around it. These types are for
// editors and for `evalcell check`; they change nothing about what runs. To have an editor know them, keep this file beside
// the evaluator and begin that with:  /// <reference path="./evalcell.d.ts" />

/** The fields of a row, by the names of `evaluate`'s parameters. `--bind NAME=PATH` says which field is which. */
interface EvaluatorParams {
  /** What was produced, and is to be scored. */
  output: any;
  /** What it should have been. */
  reference: any;
  /** What it was produced from. */
  input: any;
  /** Whatever else is known of the row. */
  metadata: any;
  /** Any other field that you name. */
  [name: string]: any;
}

/** A score with what belongs to it. A row that cannot be scored returns `score: null`, and is skipped: that is not 0. */
interface EvaluatorScore {
  name?: string;
  score?: number | null;
  label?: string | null;
  passed?: boolean | null;
  explanation?: string | null;
  metadata?: Record<string, unknown> | null;
}

/** What `evaluate` may return: a score, a verdict, a label, or several scores, each under its name. */
type EvaluatorReturn =
  | number
  | boolean
  | string
  | EvaluatorScore
  | EvaluatorScore[]
  | Record<string, number | boolean | EvaluatorScore>;

/** What `aggregate` is given of every score. */
interface EvaluatorResult {
  row: number;
  id: string | number | null;
  name: string;
  score: number | null;
  label: string | null;
  metadata: Record<string, any> | null;
}

/** Prints go into the row's record: `log`, `info` and `debug` to its stdout, the others to its stderr. */
declare const console: {
  log(...things: unknown[]): void;
  info(...things: unknown[]): void;
  debug(...things: unknown[]): void;
  warn(...things: unknown[]): void;
  error(...things: unknown[]): void;
  trace(...things: unknown[]): void;
  assert(holds: unknown, ...things: unknown[]): void;
  dir(thing: unknown): void;
  dirxml(...things: unknown[]): void;
  table(thing: unknown): void;
  group(...things: unknown[]): void;
  groupCollapsed(...things: unknown[]): void;
  groupEnd(): void;
  count(name?: string): void;
  countReset(name?: string): void;
  time(name?: string): void;
  timeLog(name?: string): void;
  timeEnd(name?: string): void;
  timeStamp(name?: string): void;
  clear(): void;
};

/** What the engine has beyond the language. */
interface ErrorConstructor {
  captureStackTrace(thing: object, above?: unknown): void;
  stackTraceLimit: number;
}
interface JSON {
  rawJSON(text: string): unknown;
  isRawJSON(thing: unknown): boolean;
}

/** The evaluator's assets, and the variables that it was granted. There is nothing else of Deno here. */
declare namespace Deno {
  /** The text of an asset. Throws `Deno.errors.NotFound` for what the block does not name. */
  function readTextFileSync(path: string): string;
  function readTextFile(path: string): Promise<string>;
  /** The bytes of an asset. */
  function readFileSync(path: string): Uint8Array;
  function readFile(path: string): Promise<Uint8Array>;
  const env: {
    get(name: string): string | undefined;
    has(name: string): boolean;
    toObject(): Record<string, string>;
  };
  const errors: {
    NotFound: ErrorConstructor;
    PermissionDenied: ErrorConstructor;
  };
}
