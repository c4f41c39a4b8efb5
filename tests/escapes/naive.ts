// A runner as one might write it in an afternoon: no wall, one realm for all rows, results on standard output.
//
//     deno run -A naive.ts MODULE ROWS
//
// Only the harm that it can do to this machine is bounded, by who starts it. It is what attacks must succeed against.

/** Reports to the parent, which believes the first line about a row. */
function say(text: string): boolean {
  const bytes = new TextEncoder().encode(text + "\n");
  for (let at = 0; at < bytes.length;) at += Deno.stdout.writeSync(bytes.subarray(at));
  return true;
}

/** Whether a number lies between 0 and 1, by its own word. */
function inRange(value: any): boolean | null {
  try {
    return value == null || typeof value === "boolean" ? null : value >= 0 && value <= 1;
  } catch {
    return null;
  }
}

/** What looks like trouble with the machine is taken for trouble with the machine. */
function problem(error: any) {
  const type = String(error?.name ?? typeof error);
  const kind = /Sandbox|Connection|Interrupted|died|NotFound|BadResource/.test(`${type} ${error?.message}`)
    ? "infrastructure"
    : "raised";
  return { kind, type, text: String(error?.message ?? error), traceback: String(error?.stack ?? "") };
}

/** Lets what is waiting be done, calls `evaluate` and reports. */
async function runRow(evaluate: (row: unknown) => unknown, number: number, row: string) {
  await new Promise((resolve) => wait(resolve));
  say(`{"row": ${number}, "started": true}`);
  let text: string;
  try {
    const value = await evaluate(JSON.parse(row));
    text = JSON.stringify({ row: number, result: value, in_range: inRange(value) });
  } catch (error) {
    text = JSON.stringify({ row: number, error: problem(error) });
  }
  say(text);
}

/** Runs the module over the rows. What it is told with is there for the taking. */
(globalThis as any).say = say;
const wait = setTimeout;
const [file, rows] = Deno.args;
const { evaluate } = await import(new URL(file, `file://${Deno.cwd()}/`).href);
for (const [number, row] of Deno.readTextFileSync(rows).split("\n").filter(Boolean).entries()) {
  await runRow(evaluate, number, row);
}
