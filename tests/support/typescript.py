"""How sources of TypeScript begin and end, for suites about that wall."""

EVALUATE = "export function evaluate({ output }: any) {\n"
RETURN = "export const evaluate = ({ output }) => output;\n"


def returning(expression: str) -> str:
    return f"{EVALUATE}  return {expression};\n}}\n"


def throwing(expression: str) -> str:
    return f"{EVALUATE}  throw {expression};\n}}\n"
