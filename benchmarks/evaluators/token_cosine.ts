// How alike the words of two texts are: the cosine of their counts.

const WORD = /[a-z0-9]+(?:'[a-z]+)?/g;

function counts(text: string): Map<string, number> {
  const found = new Map<string, number>();
  for (const word of text.toLowerCase().match(WORD) ?? []) found.set(word, (found.get(word) ?? 0) + 1);
  return found;
}

export function evaluate({ output, reference }: EvaluatorParams) {
  const a = counts(output), b = counts(reference);
  let shared = 0, ofA = 0, ofB = 0;
  for (const [word, count] of a) shared += count * (b.get(word) ?? 0);
  for (const count of a.values()) ofA += count * count;
  for (const count of b.values()) ofB += count * count;
  const norm = Math.sqrt(ofA * ofB);
  return norm ? shared / norm : 0;
}
