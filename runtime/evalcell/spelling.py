"""How the parts of an evaluator are written in its language, for messages that say what to write."""

from msgspec import Struct

from evalcell_sandboxes import Language


class Spelling(Struct, frozen=True):
    """The first line of each hook, as one writes it."""

    evaluate: str
    fit: str
    aggregate: str
    unreadable: str
    """What an `evaluate` is whose parameters cannot be read."""
    others: str
    """What takes the fields that have no parameter of their own."""
    block: str
    """How a metadata block begins."""


SPELLINGS = {
    Language.PYTHON: Spelling(
        evaluate="`def evaluate(output, reference):`",
        fit="`def fit(rows):`",
        aggregate="`def aggregate(results):`",
        unreadable="is no function defined in this file",
        others="**kwargs",
        block="# /// script",
    ),
    Language.TYPESCRIPT: Spelling(
        evaluate="`function evaluate({ output, reference }: EvaluatorParams) {`",
        fit="`function fit(rows: EvaluatorParams[]) {`",
        aggregate="`function aggregate(results: EvaluatorResult[]) {`",
        unreadable="does not take one object that names its fields, or is no function of this file",
        others="...others",
        block="// /// script",
    ),
}
