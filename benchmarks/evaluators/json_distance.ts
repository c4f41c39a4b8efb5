// The share of a document's leaves that differ from the reference: 0 for a perfect extraction, 1 for a useless one.

function* leaves(value: any, path = ""): Generator<[string, any]> {
  if (typeof value === "object" && value !== null) {
    for (const [key, item] of Object.entries(value)) yield* leaves(item, `${path}/${key}`);
  } else {
    yield [path, value];
  }
}

export function evaluate({ output, reference }: EvaluatorParams) {
  const found = new Map(leaves(JSON.parse(output)));
  const wanted = new Map(leaves(JSON.parse(reference)));
  const paths = new Set([...found.keys(), ...wanted.keys()]);
  let wrong = 0;
  for (const path of paths) if (found.get(path) !== wanted.get(path)) wrong += 1;
  return wrong / paths.size;
}
