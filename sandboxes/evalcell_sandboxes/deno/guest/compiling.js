// Makes one script of an evaluator's TypeScript: types away, exports away, everything in a function of its own. What the
// source says is learnt by parsing it; nothing of it is executed. Lines and columns stay what they are in the source.
import { stripTypeScriptTypes } from "node:module";
import { Positions } from "./positions.js";
import { acorn } from "./vendor.js";

export const HOOKS = ["evaluate", "fit", "aggregate", "evaluate_batch"];
const DEFAULT = "$default";
const OPTIONS = { ecmaVersion: "latest", sourceType: "module", locations: true, allowHashBang: true };
const MOST_LEVELS = 1_000;
export const TOO_MUCH = "the source is nested too deeply or is too large to parse";

/** Why a source does not parse, and where in it. */
export class Unparsable extends Error {
  constructor(message, line = null, column = null) {
    super(message);
    this.line = line;
    this.column = column;
  }
}

/**
 * An evaluator's source without its types: the text, what it parses to, and where its parts were.
 *
 * With blanks in the place of its types everything stays where it is. But there may be more to do than that; and where no
 * semicolon ended a line, a type may have, so that without it two statements become one. The other way does it all.
 */
export function untyped(source) {
  let blanked = null;
  let refused = "";
  try {
    const text = stripped(source, "strip");
    blanked = parsed(text, null);
    if (text === source && !blanked.tree.body.some(isImport)) return blanked;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    refused = error.message; // that is more to do, or it does not parse: the other way says where
  }
  const made = parsed(...withoutMap(stripped(source, "transform"))); // which also leaves out imports of nothing but types
  if (refused === NO_TYPESCRIPT) throw new Unparsable(CANNOT_BE_READ);
  return blanked !== null && isSame(blanked.tree, made.tree) ? blanked : made;
}

/** What Deno does not take the types out of. */
class Refused extends Unparsable {}

/** What one way says of a source that the other, which looks less closely, may take as if its rest were not there. */
const NO_TYPESCRIPT = "[InvalidSyntax] Syntax error";
const CANNOT_BE_READ =
  "the source does not parse: perhaps a comment has no end, or '<!--' or '-->' is read as the start of one";

function parsed(code, map) {
  const positions = new Positions(map);
  const comments = [];
  try {
    const options = { ...OPTIONS, onComment: comments, onToken: refusal(code) };
    return { code, tree: acorn.parse(code, options), comments, positions };
  } catch (error) {
    throw problem(error, positions);
  }
}

/**
 * Refuses, token by token, what begins a comment in scripts and none in modules, as which sources are read: what was read
 * would not be what runs.
 */
function refusal(code) {
  let before = 0;
  return ({ value, start, end, loc }) => {
    const opens = value === "<" && code.startsWith("<!--", start);
    const first = before === 0 || /[\n\r\u2028\u2029]/.test(code.slice(before, start)); // in its line
    const closes = value === "--" && code.startsWith("-->", start) && first;
    before = end;
    if (opens || closes) {
      const message = "'<!--' and '-->' can be comments: put blanks between their characters";
      throw Object.assign(new SyntaxError(message), { loc: loc.start });
    }
  };
}

function stripped(source, mode) {
  try {
    return stripTypeScriptTypes(source, { mode, sourceMap: mode === "transform" });
  } catch (error) {
    throw reasonOf(String(error?.message));
  }
}

/** What is wrong with a source that is no TypeScript: a message, lines of the source, and a position. */
function reasonOf(message) {
  const [said] = message.replace(/^SyntaxError: /, "").split("\n  |");
  const place = /:(\d+):(\d+)\s*$/.exec(message);
  const what = said.replace(/ at file:\S+$/, "").trim();
  return place === null ? new Refused(what) : new Refused(what, Number(place[1]), Number(place[2]));
}

function problem(error, positions) {
  if (!(error instanceof SyntaxError) || error.loc === undefined) {
    return new Unparsable(TOO_MUCH);
  }
  const [line, column] = positions.original(error.loc.line, error.loc.column + 1);
  const message = error.message.replace(/ \(\d+:\d+\)$/, "");
  return new Unparsable(message.endsWith("'@'") ? `${message}: there are no decorators` : message, line, column);
}

const fromBase64 = atob; // which is not there any more when it is needed
const MAP = "\n//# sourceMappingURL=data:application/json;base64,";

function withoutMap(text) {
  const at = text.lastIndexOf(MAP);
  return at < 0 ? [text, null] : [text.slice(0, at), JSON.parse(fromBase64(text.slice(at + MAP.length).trim()))];
}

const WRITING = new Set(["start", "end", "loc", "raw"]);

/** Whether two parsed sources do the same: they differ at most in how that is written. */
function isSame(one, other, levels = MOST_LEVELS) {
  if (levels === 0) throw new Unparsable(TOO_MUCH);
  if ([one, other].some((part) => typeof part !== "object" || part === null)) return one === other;
  if (one instanceof RegExp) return String(one) === String(other);
  if (Array.isArray(one)) {
    const [all, others] = [one, other].map((nodes) => nodes.filter(isSomething));
    return all.length === others.length && all.every((node, at) => isSame(node, others[at], levels));
  }
  const names = new Set([...Object.keys(one), ...Object.keys(other)]).difference(WRITING);
  return [...names].every((name) => isSame(one[name], other[name], levels - 1));
}

/** Not what stands for an element that an array does not have, which is null. */
const isSomething = (node) => node === null || (node.type !== "EmptyStatement" && !isEmptyExport(node));

const isEmptyExport = (node) =>
  node.type === "ExportNamedDeclaration" && !node.declaration && !node.source && node.specifiers.length === 0;

const isImport = (statement) =>
  statement.type === "ImportDeclaration" || statement.type === "ExportAllDeclaration" || Boolean(statement.source);

/** The script of a source: run, it gives a function; called, that executes the module and gives its hooks. */
export function compiled(source) {
  const module = untyped(source);
  const { names, text } = withoutExports(module);
  const awaits = surveyed(module.tree).awaits;
  const hooks = Object.entries(names).map(([hook, local]) =>
    `${hook}: typeof ${local} === "undefined" ? undefined : ${local}`
  );
  return {
    code: `(${awaits ? "async " : ""}function () {"use strict";\n${text}\n;return {${hooks.join(", ")}};\n})`,
    positions: module.positions,
  };
}

/** The text as a script has it, and by which name each hook goes in it. */
function withoutExports({ code, tree, comments }) {
  const text = code.split(""); // positions count these, and not characters
  if (code.startsWith("#!")) text.splice(0, 2, "/", "/");
  // The engine believes a comment that gives the script another name or another place for its lines.
  for (const { type, start } of comments) if (type === "Line" && "#@".includes(code[start + 2])) text[start + 2] = " ";
  const after = new Map();
  for (const statement of tree.body) {
    if (statement.type === "ExportNamedDeclaration") {
      fill(text, statement.start, statement.declaration?.start ?? statement.end, statement.declaration ? "" : ";");
    } else if (statement.type === "ExportDefaultDeclaration") {
      const { declaration } = statement;
      const named = Boolean(declaration.id) && declaration.type.endsWith("Declaration");
      fill(text, statement.start, endOfDefault(code, statement.start), named ? "" : `var ${DEFAULT} =`);
      if (!named && declaration.type.endsWith("Declaration")) after.set(declaration.end, ";");
    }
  }
  for (const [at, inserted] of after) text[at - 1] += inserted;
  return { names: hookNames(tree), text: text.join("") };
}

/** Where the words `export default` end that begin here. What follows them may be in parentheses. */
function endOfDefault(code, start) {
  const tokens = acorn.tokenizer(code.slice(start), OPTIONS);
  tokens.getToken();
  return start + tokens.getToken().end;
}

/** Puts spaces, after a beginning that is no longer, in the place of what is there. Lines stay lines. */
function fill(text, start, end, beginning = "") {
  const blank = text.slice(start, end).map((character) => (character === "\n" ? "\n" : " ")).join("");
  const fits = !blank.slice(0, beginning.length).includes("\n");
  text[start] = beginning + blank.slice(fits ? beginning.length : 0);
  text.fill("", start + 1, end);
}

/** The local name of every hook that a source has: as it is exported, else as it is called, else the default export. */
export function hookNames(tree) {
  const names = {};
  const all = [...declarations(tree)];
  if (all.filter(([name]) => name === DEFAULT).length > 1) {
    throw new Unparsable(`'${DEFAULT}' is what the default export is called here: give yours another name`);
  }
  const declared = new Map(all);
  for (const hook of HOOKS) if (declared.has(hook)) names[hook] = hook;
  for (const statement of tree.body) {
    if (statement.type === "ExportNamedDeclaration" && !statement.source) {
      for (const { exported, local } of statement.specifiers) {
        const name = exported.name ?? exported.value;
        if (HOOKS.includes(name)) names[name] = local.name;
        if (name === "default") names.evaluate ??= local.name;
      }
    } else if (statement.type === "ExportDefaultDeclaration") {
      const { declaration } = statement;
      const name = declaration.type.endsWith("Declaration") ? declaration.id?.name : declaration.name;
      names.evaluate ??= declared.has(name) ? name : DEFAULT;
    }
  }
  return names;
}

/** What is declared at the top level: pairs of a name and the node that it stands for, null where that is not known. */
export function* declarations(tree) {
  for (const statement of tree.body) {
    const node = statement.declaration ?? statement;
    if (statement.type === "ExportDefaultDeclaration" && !(node.id && node.type.endsWith("Declaration"))) {
      yield [DEFAULT, node];
    } else if (node.type === "FunctionDeclaration" || node.type === "ClassDeclaration") {
      yield [node.id.name, node];
    } else if (node.type === "VariableDeclaration") {
      for (const { id, init } of node.declarations) {
        if (id.type === "Identifier") yield [id.name, init];
        else for (const name of namesIn(id)) yield [name, null];
      }
    } else if (node.type === "ImportDeclaration") {
      for (const { local } of node.specifiers) yield [local.name, null];
    }
  }
}

function* namesIn(pattern) {
  if (pattern === null) return;
  if (pattern.type === "Identifier") yield pattern.name;
  const inside = {
    ObjectPattern: () => pattern.properties.map((property) => property.value ?? property.argument),
    ArrayPattern: () => pattern.elements,
    AssignmentPattern: () => [pattern.left],
    RestElement: () => [pattern.argument],
  };
  for (const each of inside[pattern.type]?.() ?? []) yield* namesIn(each);
}

const isAwait = (node) =>
  node.type === "AwaitExpression" || (node.type === "ForOfStatement" && node.await) || node.kind === "await using";

/** What only looking at all of a source tells: which modules it imports, and whether it awaits at its top level. */
export function surveyed(tree) {
  const found = { imports: [], awaits: false, meta: null };
  const look = (node, inFunction, levels) => {
    if (levels === 0) throw new Unparsable(TOO_MUCH);
    if (node.type === "ImportExpression") found.imports.push([node.source, node]);
    else if (isImport(node)) found.imports.push([node.source, node]);
    else if (node.type === "MetaProperty" && node.meta.name === "import") found.meta ??= node;
    else if (!inFunction && isAwait(node)) found.awaits = true;
    const within = inFunction || node.type.includes("Function") || node.type === "StaticBlock" ||
      node.type === "PropertyDefinition";
    for (const [name, child] of Object.entries(node)) {
      for (const each of Array.isArray(child) ? child : [child]) {
        if (typeof each?.type === "string") look(each, name === "key" ? inFunction : within, levels - 1);
      }
    }
  };
  look(tree, false, MOST_LEVELS);
  return found;
}
//# sourceURL=evalcell:compiling
