// /// script
// [tool.evalcell]
// output = {range = [0.0, 1.0], direction = "maximize", threshold = 0.5}
// ///

// How many words two texts share, as the cosine of their word counts: 1 for the same words, 0 for none. The Python example of
// the same name hashes its words; nothing has to be hashed where they can be counted in a map.
//
// It compares words, not meanings: a paraphrase with other words scores low. A word has two letters or more, as there.

const WORD = /[\p{L}\p{N}_]{2,}/gu;

function counts(text: string): Map<string, number> {
  const found = new Map<string, number>();
  for (const [word] of text.toLowerCase().matchAll(WORD)) found.set(word, (found.get(word) ?? 0) + 1);
  return found;
}

function product(one: Map<string, number>, other: Map<string, number>): number {
  return one.entries().reduce((sum, [word, count]) => sum + count * (other.get(word) ?? 0), 0);
}

export function evaluate({ output, reference }: EvaluatorParams): EvaluatorReturn {
  if (!output || !reference) {
    return { label: "missing", score: 0, explanation: "One of the two texts is missing." };
  }
  const found = counts(String(output));
  const wanted = counts(String(reference));
  const lengths = Math.sqrt(product(found, found) * product(wanted, wanted));
  const cosine = lengths === 0 ? 0 : product(found, wanted) / lengths;
  return { score: cosine, explanation: `Cosine of the word counts: ${cosine.toFixed(4)}.` };
}
