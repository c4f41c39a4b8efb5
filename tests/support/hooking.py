"""Evaluators with hooks, and runs of them."""

import evalcell

FIT = "seen = None\ndef fit(rows):\n    global seen\n    seen = [row['output'] for row in rows]\n"
SEEN = FIT + "def evaluate(output):\n    return {'score': output, 'label': str(seen)}\n"
ECHO = "def evaluate(output):\n    return output\n"


def start(source, items, **options):
    return evalcell.run(evalcell.Evaluator.from_source(source), items, **options)


def numbers(count):
    return [{"output": n} for n in range(count)]
