"""The share of a document's leaves that differ from the reference: 0 for a perfect extraction, 1 for a useless one."""

import json


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value


def evaluate(output, reference):
    found, wanted = dict(leaves(json.loads(output))), dict(leaves(json.loads(reference)))
    paths = found.keys() | wanted.keys()
    missing = object()
    wrong = sum(found.get(path, missing) != wanted.get(path, missing) for path in paths)
    return wrong / len(paths)
