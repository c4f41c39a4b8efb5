// /// script
// [tool.evalcell]
// output = {range = [0.0, inf], direction = "minimize", threshold = 0.0}
// ///

// How many leaves of a JSON document differ from the reference: 0 for a perfect extraction, more for every slip.
//
// Either side may be JSON text or an already decoded value. A leaf that differs counts one, and so does every list
// element that only one side has. A key that one side lacks counts as null there.

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

function isObject(value: Json): value is { [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function at(object: { [key: string]: Json }, key: string): Json {
  return Object.hasOwn(object, key) ? object[key] : null;
}

function differences(found: Json, wanted: Json): number {
  if (isObject(found) && isObject(wanted)) {
    const keys = new Set([...Object.keys(found), ...Object.keys(wanted)]);
    return [...keys].reduce((sum, key) => sum + differences(at(found, key), at(wanted, key)), 0);
  }
  if (Array.isArray(found) && Array.isArray(wanted)) {
    const shared = found.slice(0, wanted.length);
    const extra = Math.abs(found.length - wanted.length);
    return shared.reduce<number>((sum, item, place) => sum + differences(item, wanted[place]), extra);
  }
  return found === wanted ? 0 : 1;
}

const decoded = (value: unknown): Json => (typeof value === "string" ? JSON.parse(value) : value as Json);

export function evaluate({ output, reference }: EvaluatorParams): EvaluatorReturn {
  let found: Json, wanted: Json;
  try {
    found = decoded(output);
    wanted = decoded(reference);
  } catch (problem) {
    return { label: "invalid", score: null, explanation: `Not valid JSON: ${(problem as Error).message}` };
  }
  const count = differences(found, wanted);
  if (count === 0) {
    return { label: "match", score: 0, explanation: "Every field is as it should be." };
  }
  return { label: "mismatch", score: count, explanation: `${count} field(s) are not as they should be.` };
}
