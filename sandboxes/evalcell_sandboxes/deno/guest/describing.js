// Says what a source declares by parsing it: hooks, parameters, imports, the metadata block. Executes nothing.
import { builtinModules } from "node:module";
import { declarations, hookNames, HOOKS, surveyed, TOO_MUCH, Unparsable, untyped } from "./compiling.js";
import { toml } from "./vendor.js";

const BLOCK_START = "// /// script";
const BLOCK_END = "// ///";
const LONGEST_DEFAULT = 200;

/** `{"syntax_error": ...}`, or the hooks, imports and metadata of the source. */
export function describe(source) {
  try {
    return described(source);
  } catch (error) {
    const known = error instanceof Unparsable;
    const message = known ? error.message : TOO_MUCH;
    const [line, column] = known ? [error.line, error.column] : [null, null];
    const text = line === null ? "" : (source.split("\n")[line - 1] ?? "").slice(0, 500).trimEnd();
    return encoded({ syntax_error: { message: message.slice(0, 500), line, column, text } });
  }
}

function described(source) {
  const module = untyped(source);
  const { imports, meta } = surveyed(module.tree);
  if (meta !== null) {
    throw new Unparsable(
      "import.meta is not there: an evaluator is one file, and no module of others",
      ...at(module, meta),
    );
  }
  return encoded({
    hooks: hooks(module),
    imports: imports.map((each) => imported(module, ...each)),
    block: block(source),
  });
}

/** As JSON that can be read: what was cut may end with half a character, and a name may be no text. */
const encoded = (value) => JSON.stringify(value, (_, item) => (typeof item === "string" ? item.toWellFormed() : item));

const at = ({ positions }, node) => positions.original(node.loc.start.line, node.loc.start.column + 1);

function imported(module, source, node) {
  const name = source?.type === "Literal" ? String(source.value) : "(computed)";
  const standard = name.startsWith("node:") || builtinModules.includes(name);
  return {
    module: name.slice(0, LONGEST_DEFAULT),
    line: at(module, node)[0],
    optional: false,
    standard,
    present: false,
  };
}

// -- hooks --------------------------------------------------------------------------------------------------------------
function hooks(module) {
  const declared = new Map(declarations(module.tree)); // of two, the later one is what would run
  const names = hookNames(module.tree);
  return HOOKS.filter((hook) => hook in names).map((hook) => {
    const node = declared.get(names[hook]);
    const known = node?.type.includes("Function") ? node : null;
    return {
      name: hook,
      line: node == null ? 1 : at(module, node)[0],
      is_async: known?.async ?? false,
      parameters: known && (hook === "evaluate" ? fields(module, known.params) : positional(known.params)),
    };
  });
}

/** The fields of the row that `evaluate({ output, reference = 1, ...others })` takes; null where they are not named. */
function fields({ code }, params) {
  const [first, ...others] = params;
  const pattern = first?.type === "AssignmentPattern" ? first.left : first;
  if (pattern?.type !== "ObjectPattern" || others.some(isNeeded)) return null;
  const found = new Map(); // a field may be taken twice
  for (const property of pattern.properties) {
    if (property.type === "RestElement") {
      found.set(property, { name: property.argument.name, kind: "any_keyword", default: null });
    } else if (property.computed) {
      return null;
    } else {
      const name = String(property.key.name ?? property.key.value);
      const given = property.value.type === "AssignmentPattern" ? property.value.right : null;
      const text = given === null ? null : code.slice(given.start, given.end).slice(0, LONGEST_DEFAULT);
      if (text === null || !found.has(name)) found.set(name, { name, kind: "keyword_only", default: text });
    }
  }
  return [...found.values()];
}

const isNeeded = (param) => param.type !== "AssignmentPattern" && param.type !== "RestElement";

/** The parameters of a hook that is called with a list. What a pattern is called makes no difference. */
function positional(params) {
  return params.map((param, place) => ({
    name: param.name ?? `argument ${place + 1}`,
    kind: param.type === "RestElement" ? "variadic" : "positional_only",
    default: param.type === "AssignmentPattern" ? "..." : null,
  }));
}

// -- metadata -----------------------------------------------------------------------------------------------------------
/** The inline metadata block, as PEP 723 has it but behind `//`; null without one. */
function block(source) {
  const lines = source.split("\n").map((line) => line.trimEnd());
  const starts = lines.flatMap((line, number) => (line === BLOCK_START ? [number] : []));
  if (starts.length === 0) return null;
  if (starts.length > 1) return { error: `a second '${BLOCK_START}' block`, line: starts[1] + 1 };
  const line = starts[0] + 1;
  const rest = lines.slice(line);
  const stop = rest.findIndex((text) => text !== "//" && !text.startsWith("// "));
  const content = stop < 0 ? rest : rest.slice(0, stop);
  const end = content.lastIndexOf(BLOCK_END);
  if (end < 0) return { error: `the block has no closing '${BLOCK_END}'`, line };
  try {
    const text = content.slice(0, end).map((text) => text.slice(3)).join("\n");
    return { table: plain(toml().parse(text, { integersAsBigInt: "asNeeded" }), "$"), line };
  } catch (error) {
    const [said] = String(error?.message).split("\n");
    return { error: `not valid TOML: ${said}`.slice(0, 500), line };
  }
}

/** TOML as JSON: dates become text, and so does `inf`, but only as a bound of the output, which reads it as such. */
function plain(value, where) {
  if (typeof value === "bigint") {
    if (value >= 2n ** 63n || value < -(2n ** 63n)) {
      throw new Error(`an integer of more than 64 bits has no place at ${where.slice(2)}`);
    }
    return JSON.rawJSON(String(value));
  }
  if (typeof value === "number" && !Number.isFinite(value)) {
    if (where !== "$.tool.evalcell.output.range") throw new Error(`${value} has no place at ${where.slice(2)}`);
    return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  }
  if (Array.isArray(value)) return value.map((item) => plain(item, where));
  if (value instanceof Date) return value.toISOString();
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([key, item]) => [key, plain(item, `${where}.${key}`)]);
  return Object.fromEntries(entries);
}
//# sourceURL=evalcell:describing
