"""Has Deno say what TypeScript's checker thinks of an evaluator. Types change nothing about what runs.

The checker reads files that a source names, wherever they are, and quotes them. So it is given a directory of its own,
and kept in a jail that shows it no other. Where no jail can keep files from it, nothing is checked: there are too many
ways to name a file.
"""

import json
import re
import tempfile
import threading
from pathlib import Path

from evalcell_sandboxes.deno import DECLARATIONS, jail
from evalcell_sandboxes.deno.process import ENVIRONMENT, OUT_OF_STACK, program
from evalcell_sandboxes.description import TypeProblem
from evalcell_sandboxes.errors import SandboxFault
from evalcell_sandboxes.program import Limits

_CONFIGURATION = {"compilerOptions": {"lib": ["esnext"], "strict": True, "types": [f"./{DECLARATIONS.name}"]}}
_ALONE = ("--quiet", "--no-remote", "--no-npm", "--no-lock")
_MEMORY_BYTES = 1024**3
_MOST_BYTES = 1024**2
_MOST_PROBLEMS = 50
_PROBLEM = re.compile(r"^(TS\d+) \[ERROR\]: (.*)$")


def check(source: str, limits: Limits) -> tuple[TypeProblem, ...]:
    """What the checker has to say of a source, problem by problem, in the order of the source.

    Raises:
        SandboxFault: It could not be asked, or has not come to an end.
    """
    if not jail.hides_files():
        raise SandboxFault(
            f"its types were not checked: nothing here keeps files from the checker, as {jail.HIDING} would"
        )
    with tempfile.TemporaryDirectory(prefix="evalcell-types-") as made:
        directory = Path(made)
        (directory / "evaluator.ts").write_text(source, encoding="utf-8", newline="")
        (directory / DECLARATIONS.name).write_bytes(DECLARATIONS.read_bytes())
        (directory / "deno.json").write_text(json.dumps(_CONFIGURATION), encoding="utf-8")
        said, code = _asked(directory, limits)
    found = _problems(said, directory.as_uri() + "/")
    if code and not found:
        raise SandboxFault(f"its types were not checked: {_reason(said, directory.as_uri() + '/')}")
    return found


def _reason(said: str, where: str) -> str:
    """Why the checker has ended without a word about the types."""
    if OUT_OF_STACK in said:
        return "the source is nested too deeply"
    message = said.removeprefix("error: ").replace(where, "").split("\n    at ext:")[0]
    return message.strip()[:300] or "the checker used up the memory that it may"


def _asked(directory: Path, limits: Limits) -> tuple[str, int]:
    """What the checker says, as much as can be of use, and its exit code. It quotes a long line with every problem."""
    command = [program(), "check", *_ALONE, "--config", str(directory / "deno.json"), str(directory / "evaluator.ts")]
    with jail.Jail(command, environment=ENVIRONMENT, readable=[directory], memory_bytes=_MEMORY_BYTES) as jailed:
        assert jailed.process.stderr is not None
        ending = threading.Timer(limits.load_seconds, jailed.process.kill)
        ending.start()
        said = jailed.process.stderr.read(_MOST_BYTES)
        late = not ending.is_alive()
        ending.cancel()
        jailed.close()
        if late:
            raise SandboxFault(f"its types were not checked within the limit of {limits.load_seconds:g} s")
        return said.decode(errors="replace"), jailed.process.returncode


def _problems(said: str, where: str) -> tuple[TypeProblem, ...]:
    """A problem has a line of its own, and the first place after that is where it is. What is quoted of the source in
    between cannot pass for either: a problem is looked for where none is open, and nobody in there knows the place.
    """
    place_of = re.compile(rf"^ {{4}}at {re.escape(where)}evaluator\.ts:(\d{{1,9}}):(\d{{1,9}})$")
    found: list[TypeProblem] = []
    open_problem: tuple[str, str] | None = None
    for line in said.split("\n"):
        if open_problem is None:
            problem = _PROBLEM.match(line)
            open_problem = (problem[1], problem[2]) if problem else None
        elif (place := place_of.match(line)) is not None:
            code, message = open_problem
            found.append(TypeProblem(message.replace(where, "")[:500], int(place[1]), int(place[2]), code))
            open_problem = None
    return tuple(sorted(found, key=lambda problem: (problem.line, problem.column))[:_MOST_PROBLEMS])
