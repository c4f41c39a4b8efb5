"""Which compiled module is used: the installation's own, for any processor, or one in the cache, for this very one."""

import re

import pytest
from wasmtime import WasmtimeError
from wasmtime.component import Component

from evalcell_sandboxes import silent
from evalcell_sandboxes.wasm import module
from evalcell_sandboxes.wasm.engine import make_engine

_FEATURE = re.compile(rb"has_[a-z0-9_]+\x02([\x00\x01])")
"""How wasmtime writes down what a module uses of a processor: a name, that it is yes or no, and which."""


@pytest.fixture
def installation(tmp_path, monkeypatch):
    """An installation that has been given no module, and a user who has no cache."""
    monkeypatch.setattr(module, "__file__", str(tmp_path / "module.py"))
    monkeypatch.setenv("EVALCELL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def used(serialized: bytes) -> set[bytes]:
    return set(_FEATURE.findall(serialized))


def test_what_an_installation_carries_is_used_and_no_cache_is_made(installation):
    carried = module._packaged()
    carried.touch()
    assert module.path() == module.prepare(silent) == carried
    assert not (installation / "cache").exists()


@pytest.mark.parametrize("changed", ["wasmtime", "guest", "machine"])
def test_what_was_compiled_for_something_else_is_not_used(installation, monkeypatch, changed):
    module._packaged().touch()
    match changed:
        case "wasmtime":
            monkeypatch.setattr(module, "installed", lambda _: "50.9.9")
        case "guest":
            monkeypatch.setattr(module.image, "identity", lambda: "another")
        case "machine":
            monkeypatch.setattr(module.platform, "machine", lambda: "another")
    assert module.path().parent == installation / "cache" / "wasm"


def test_what_is_compiled_for_any_processor_uses_nothing_that_only_some_have():
    anywhere = Component(make_engine(any_processor=True), "(component)").serialize()
    assert used(anywhere) == {b"\x00"}
    Component.deserialize(make_engine(), anywhere)


def test_without_that_it_uses_what_this_processor_has():
    assert b"\x01" in used(Component(make_engine(), "(component)").serialize())


def test_a_module_that_would_use_what_this_processor_lacks_is_refused_and_not_run():
    serialized = Component(make_engine(), "(component)").serialize()
    lacking = _FEATURE.search(serialized.replace(b"\x02\x01", b"\x02\x02"))
    if lacking is None:
        pytest.skip("this processor has everything that wasmtime knows of")
    at = lacking.end() - 1
    # "not available on the host", or where wasmtime cannot tell that of any processor: "incompatible with native host".
    with pytest.raises(WasmtimeError, match=r"(available on the|with native) host"):
        Component.deserialize(make_engine(), serialized[:at] + b"\x01" + serialized[at + 1 :])
