import pytest

from evalcell.choice import check_python, choose, provider
from evalcell.errors import EvaluatorError, UsageError
from evalcell.evaluator import Evaluator
from evalcell_sandboxes import Description, Import, Network


def described(*imports):
    return Description(hooks=(), imports=tuple(imports))


JSON = Import("json", 1, standard=True, present=True)
SKLEARN = Import("sklearn.metrics", 3)


def test_code_of_the_standard_library_runs_in_webassembly():
    choice = choose(described(JSON), (), None)
    assert choice.sandbox == "wasm"
    assert "standard library" in choice.reason


def test_declared_dependencies_need_a_container():
    choice = choose(described(JSON, SKLEARN), ("scikit-learn>=1.5",), None)
    assert choice.sandbox == "container"
    assert "scikit-learn" in choice.reason


def test_a_network_that_was_granted_needs_a_container():
    choice = choose(described(JSON), (), None, Network.FULL)
    assert choice.sandbox == "container"
    assert "network" in choice.reason
    with pytest.raises(UsageError, match="granted the network, which only a container can have: leave out one"):
        choose(described(JSON), (), "wasm", Network.FULL)


def test_an_undeclared_import_is_an_error_with_the_line_to_add():
    with pytest.raises(
        EvaluatorError, match=r'Line 3 imports .sklearn.metrics.(.|\n)*dependencies = \["scikit-learn"\]'
    ) as caught:
        choose(described(SKLEARN), (), None)
    assert caught.value.kind == "import"


def test_one_more_undeclared_import_names_the_package_to_add():
    with pytest.raises(EvaluatorError, match="'numpy'"):
        choose(described(SKLEARN, Import("numpy", 4)), ("scikit-learn",), None)


@pytest.mark.parametrize(
    ("module", "dependencies"),
    [
        ("yaml", ["PyYAML"]),
        ("google.cloud.storage", ["google-cloud-storage"]),
        ("weird_import", ["some-other-name"]),
        ("PIL.Image", ["pillow"]),
        ("Foo_Bar", ["foo.bar"]),
    ],
)
def test_a_declared_package_covers_its_import_however_it_is_spelled(module, dependencies):
    assert choose(described(Import(module, 1)), dependencies, None).sandbox == "container"


def test_an_optional_import_is_no_reason_for_a_container():
    assert choose(described(JSON, Import("numpy", 2, optional=True)), (), None).sandbox == "wasm"


def test_a_module_that_webassembly_lacks_is_named():
    with pytest.raises(EvaluatorError, match="'ssl', which CPython for WebAssembly does not have"):
        choose(described(Import("ssl", 1, standard=True)), (), None)


def test_a_relative_import_has_nothing_to_import_from():
    with pytest.raises(EvaluatorError, match="one file"):
        choose(described(Import(".helpers", 1)), (), None)


@pytest.mark.parametrize(("module", "file"), [("words", "words.py"), ("words.rare", "words/__init__.py")])
def test_nobody_is_told_to_install_a_package_named_like_a_file_beside_the_evaluator(tmp_path, write, module, file):
    """It would be a stranger's."""
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    evaluator = Evaluator.from_file(write("judge.py", ""))
    with pytest.raises(EvaluatorError, match=f"'{file}' lies beside the evaluator.*cannot be imported") as refused:
        choose(described(Import(module, 1)), (), None, beside=evaluator.beside)
    assert "--dep" not in str(refused.value)
    assert choose(described(Import(module, 1)), ("words",), None, beside=evaluator.beside).sandbox == "container"


def test_what_lies_beside_an_evaluator_is_looked_for_there_alone(tmp_path, write):
    write("secret.py", "")
    (tmp_path / "here").mkdir()
    own = Evaluator.from_file(write("here/numpy.py", ""))
    assert own.beside("numpy") is None, "the evaluator itself is not beside it"
    assert own.beside("../secret") is None
    assert own.beside("\0") is None
    assert Evaluator.from_source("").beside("secret") is None


def test_a_weaker_sandbox_is_never_taken_for_code_that_needs_another():
    with pytest.raises(EvaluatorError, match="scikit-learn"):
        choose(described(SKLEARN), ("scikit-learn",), "wasm")


def test_a_sandbox_that_was_asked_for_is_taken():
    assert choose(described(JSON), (), "container").sandbox == "container"


def test_requires_python_is_held_against_the_sandbox():
    check_python(">=3.11", "wasm", "3.14.0")
    check_python(None, "wasm", "3.14.0")
    with pytest.raises(EvaluatorError, match="Python 3.14.0"):
        check_python("<3.13", "wasm", "3.14.0")


def test_packages_are_known_by_what_they_provide():
    assert provider("sklearn.feature_extraction.text") == "scikit-learn"
    assert provider("some_module.sub") == "some-module"
