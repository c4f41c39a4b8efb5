"""The Deno wall: TypeScript in a process without permissions, with the operating system's limits around it."""

from pathlib import Path

DECLARATIONS = Path(__file__).parent / "evalcell.d.ts"
"""The types of what an evaluator is called with and finds around it, for editors and for the checker of types."""
