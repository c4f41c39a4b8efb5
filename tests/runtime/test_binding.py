import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from evalcell.binding import Binder, Binding, Unbound, bind, missing_in
from evalcell.errors import EvaluatorError, UsageError
from evalcell_sandboxes import Hook, Kind, Parameter

OUTPUT, REFERENCE = Parameter("output"), Parameter("reference")


def hook(*parameters):
    return Hook("evaluate", 1, parameters=parameters)


def arguments(bindings, row):
    text = json.dumps(row).encode()
    made = Binder(bindings).arguments(text, msgspec.json.decode(text, type=dict[str, Raw]))
    return made if isinstance(made, Unbound) else json.loads(made)


def test_a_parameter_takes_the_field_of_its_name():
    assert arguments(bind(hook(OUTPUT, REFERENCE), {}, {}), {"output": 1, "reference": None, "secret": 2}) == {
        "output": 1,
        "reference": None,
    }


@pytest.mark.parametrize(
    "name", ["a.b", "a[0]", "unit price", "it's", 'say "hi"', "back\\slash", "$", "*", "", "ü", "a\nb"]
)
def test_a_parameter_of_any_name_takes_the_field_of_that_name_and_no_path(name):
    row = {name: 6, "a": {"b": 7}, "c": 8}
    assert arguments(bind(hook(Parameter(name)), {}, {}), row) == {name: 6}
    assert "Did you mean" not in arguments(bind(hook(Parameter(name)), {}, {}), {"zzz": 1}).message


def test_what_is_not_bound_does_not_get_in():
    made = arguments(bind(hook(OUTPUT), {}, {}), {"output": 1, "reference": "secret"})
    assert made == {"output": 1}


def test_paths_and_literals_are_bound():
    bindings = bind(hook(OUTPUT, REFERENCE, Parameter("case")), {"reference": "expected.text"}, {"case": [1, "x"]})
    assert arguments(bindings, {"output": 1, "expected": {"text": "t"}}) == {
        "output": 1,
        "reference": "t",
        "case": [1, "x"],
    }


def test_a_missing_required_path_says_which_and_suggests():
    made = arguments(bind(hook(OUTPUT, REFERENCE), {}, {}), {"output": 1, "referense": 2})
    assert isinstance(made, Unbound)
    assert "'reference'" in made.message
    assert "Did you mean 'referense'?" in made.message


def test_a_missing_optional_path_leaves_the_default_to_the_function():
    bindings = bind(hook(OUTPUT, Parameter("k", default="3")), {}, {})
    assert arguments(bindings, {"output": 1}) == {"output": 1}
    assert arguments(bindings, {"output": 1, "k": None}) == {"output": 1, "k": None}


def test_numbers_keep_every_digit():
    text = b'{"output": 12345678901234567890123, "reference": 1.10}'
    made = Binder(bind(hook(OUTPUT, REFERENCE), {}, {})).arguments(text, msgspec.json.decode(text, type=dict[str, Raw]))
    assert made == b'{"output":12345678901234567890123,"reference":1.10}'


def test_any_keyword_takes_what_is_bound_by_name_and_nothing_else():
    anything = hook(OUTPUT, Parameter("rest", Kind.ANY_KEYWORD))
    assert arguments(bind(anything, {"extra": "x"}, {"fixed": 1}), {"output": 1, "x": 2, "y": 3}) == {
        "output": 1,
        "extra": 2,
        "fixed": 1,
    }
    assert arguments(bind(anything, {}, {}), {"output": 1, "y": 3}) == {"output": 1}


def test_variadic_parameters_get_nothing():
    assert arguments(bind(hook(OUTPUT, Parameter("args", Kind.VARIADIC)), {}, {}), {"output": 1, "args": [1]}) == {
        "output": 1
    }


@pytest.mark.parametrize(
    ("paths", "literals", "message"),
    [
        ({"outptu": "x"}, {}, "no parameter 'outptu'.*Did you mean 'output'"),
        ({}, {"nothing": 1}, "no parameter 'nothing'"),
        ({"output": "x"}, {"output": 1}, "Keep one of the two"),
        ({"output": "a..b"}, {}, "'..'"),
    ],
)
def test_a_binding_that_makes_no_sense_is_refused_before_anything_runs(paths, literals, message):
    with pytest.raises(UsageError, match=message):
        bind(hook(OUTPUT), paths, literals)


def test_a_signature_that_cannot_be_read_is_refused():
    with pytest.raises(EvaluatorError, match="cannot be read"):
        bind(Hook("evaluate", 3), {}, {})


@pytest.mark.parametrize(
    "parameters", [(), (Parameter("rest", Kind.ANY_KEYWORD),), (Parameter("args", Kind.VARIADIC),)]
)
def test_an_evaluator_that_takes_nothing_from_the_row_is_refused(parameters):
    with pytest.raises(EvaluatorError, match="takes nothing from the row"):
        bind(hook(*parameters), {}, {})


def test_bindings_cannot_multiply_a_row_without_end():
    anything = hook(OUTPUT, Parameter("rest", Kind.ANY_KEYWORD))
    with pytest.raises(EvaluatorError, match="64 are allowed"):
        bind(anything, {f"p{n}": "$" for n in range(100)}, {})
    made = arguments(bind(anything, {f"p{n}": "$" for n in range(60)}, {}), {"output": "x" * 2_000_000})
    assert isinstance(made, Unbound)


def test_the_first_row_tells_what_is_missing():
    bindings = bind(hook(OUTPUT, REFERENCE), {}, {})
    assert missing_in(bindings, b'{"output": 1, "reference": null}') == []
    assert len(missing_in(bindings, b'{"output": 1}')) == 1
    assert missing_in(bindings, b"not json") == []


names = st.text(st.characters(categories=["Ll"]), min_size=1, max_size=6)


@given(
    st.dictionaries(names, st.none() | st.integers() | st.text() | st.lists(st.booleans()), min_size=1, max_size=6),
    st.data(),
)
def test_binding_by_name_gives_exactly_the_chosen_fields(row, data):
    chosen = data.draw(st.lists(st.sampled_from(sorted(row)), unique=True))
    assert arguments([Binding(name, path=f"['{name}']") for name in chosen], row) == {
        name: row[name] for name in chosen
    }
