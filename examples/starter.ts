/// <reference path="./evalcell.d.ts" />
// /// script
// [tool.evalcell]
// # What a score means. Delete this block, and any finite number is a score.
// output = {range = [0.0, 1.0], direction = "maximize", threshold = 0.8}
// ///

// How many of the reference's words the output has: 1 for all of them, 0 for none.

// Whatever stands here runs once for every row, before it: nothing a row does reaches the next one.
const WORD = /[\p{L}\p{N}_]+/gu;

function words(text: string): Set<string> {
  return new Set(text.toLowerCase().match(WORD) ?? []);
}

/** Called for every row. Each name in braces takes the row's field of that name; --bind says otherwise. */
export function evaluate({ output, reference }: EvaluatorParams): EvaluatorReturn {
  const wanted = words(reference);
  if (wanted.size === 0) {
    // null is for a row that cannot be scored. It is skipped, which is not the same as 0.
    return { score: null, explanation: "The reference has no words." };
  }
  const missing = wanted.difference(words(output));
  // A number, true, false or a label alone would do. More is kept with the score.
  return {
    score: 1 - missing.size / wanted.size,
    explanation: missing.size > 0 ? `Missing: ${[...missing].sort().join(", ")}` : "Every word is there.",
  };
}
