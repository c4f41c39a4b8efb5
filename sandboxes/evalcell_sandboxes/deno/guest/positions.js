// Where in an evaluator's source something is that was found in what was made of it.
const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

export class Positions {
  /** Of a source map; without one they are the same. */
  constructor(map) {
    this.lines = map === null ? null : decoded(map.mappings);
  }

  /** The line and the column in the source, both counted from 1. */
  original(line, column) {
    if (this.lines === null) return [line, column];
    for (let at = Math.min(line, this.lines.length); at > 0; at--) {
      const before = (this.lines[at - 1] ?? []).findLast((segment) => at < line || segment.column < column);
      if (before !== undefined) {
        const further = at === line ? column - 1 - before.column : 0;
        return [before.sourceLine + 1, before.sourceColumn + 1 + further];
      }
    }
    return [line, column];
  }
}

/** The segments of each line (https://tc39.es/ecma426/). */
function decoded(mappings) {
  let sourceLine = 0;
  let sourceColumn = 0;
  return mappings.split(";").map((line) => {
    let column = 0;
    const segments = [];
    for (const segment of line.split(",").filter(Boolean)) {
      const [columns, , lines, sourceColumns] = numbers(segment);
      column += columns;
      if (lines === undefined) continue;
      sourceLine += lines;
      sourceColumn += sourceColumns;
      segments.push({ column, sourceLine, sourceColumn });
    }
    return segments;
  });
}

function numbers(segment) {
  const found = [];
  let shift = 0;
  let value = 0;
  for (const digit of segment) {
    const bits = DIGITS.indexOf(digit);
    value += (bits & 31) * 2 ** shift;
    shift += 5;
    if (bits & 32) continue;
    found.push(value % 2 ? -Math.floor(value / 2) : value / 2);
    shift = value = 0;
  }
  return found;
}
//# sourceURL=evalcell:positions
