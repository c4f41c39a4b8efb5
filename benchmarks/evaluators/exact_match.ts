export function evaluate({ output, reference }: EvaluatorParams) {
  return output === reference;
}
