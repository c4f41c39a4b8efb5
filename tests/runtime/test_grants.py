"""A file's block requests, the operator grants: every combination of what is asked for and who has granted it."""

import re
from itertools import product

import pytest

import evalcell
from evalcell.blocks import read
from evalcell.cli.options import _quantity
from evalcell.configuration import FLAG, MAXIMUM, Configuration, Named, Operator, settings
from evalcell.errors import EvaluatorError, UsageError
from evalcell.manifest import Manifest
from evalcell.settings import settle
from evalcell_sandboxes import Isolation, Limits, Network
from evalcell_sandboxes.site import ENVIRONMENT, Site

HIGH = MAXIMUM.wall_seconds + 1
SANDBOX = "sandbox 'mine'"

# For each thing that must be granted: what a file asks for, what grants it, what denies it, and the flag to name.
ASKED = {
    "env": (["TOKEN"], ["TOKEN"], None, "--env TOKEN"),
    "network": ("full", "full", "none", "--network full"),
    "isolation": ("evaluator", "evaluator", "row", "--isolation evaluator"),
    "limits": ({"wall_seconds": HIGH}, {"wall_seconds": HIGH}, {"wall_seconds": 1.0}, f"--limit wall_seconds={HIGH:g}"),
}
NOBODY = ("nobody", "nobody")
WAYS = [("grants", "flag"), ("grants", "sandbox"), ("denies", "flag"), ("denies", "sandbox"), NOBODY]


def _combinations(name):
    """Whether a file asks for it, and what the operator said about it, where."""
    return [
        (asks, way) for asks, way in product((True, False), WAYS) if way[0] != "denies" or ASKED[name][2] is not None
    ]


def _said(ways, where):
    said = {}
    for name, (_, (how, place)) in ways.items():
        if place == where:
            said[name] = ASKED[name][1] if how == "grants" else ASKED[name][2]
    return said


def _value(settled, name):
    return settled.limits.wall_seconds if name == "limits" else getattr(settled, name)


def _expected(name, how):
    _, granted, denied, _ = ASKED[name]
    defaults = {"env": (), "network": Network.NONE, "isolation": Isolation.ROW, "limits": Limits().wall_seconds}
    value = granted if how == "grants" else denied if how == "denies" else defaults[name]
    return {"env": tuple, "limits": lambda v: v["wall_seconds"] if isinstance(v, dict) else v}.get(name, str)(value)


def test_every_combination_of_asking_and_granting():
    checked = refused = 0
    for combination in product(*(_combinations(name) for name in ASKED)):
        ways = dict(zip(ASKED, combination, strict=True))
        block = {name: ASKED[name][0] for name, (asks, _) in ways.items() if asks}
        manifest = read({"tool": {"evalcell": block}}, 1)
        operator = Operator(**_said(ways, "flag"), named=Named("mine", Configuration(**_said(ways, "sandbox"))))
        missing = [ASKED[name][3] for name, (asks, way) in ways.items() if asks and way == NOBODY]
        checked += 1
        if missing:
            refused += 1
            with pytest.raises(EvaluatorError) as refusal:
                settle(manifest, operator)
            assert any(flag in str(refusal.value) for flag in missing), (ways, str(refusal.value))
            continue
        settled = settle(manifest, operator)
        for name, (_, (how, place)) in ways.items():
            assert _value(settled, name) == _expected(name, how), (name, ways)
            source = settled.sources["limits.wall_seconds" if name == "limits" else name]
            assert source == {"flag": FLAG, "sandbox": SANDBOX, "nobody": "default"}[place], (name, ways)
    assert (checked, refused) == (6 * 10 * 10 * 10, 6000 - 5 * 9 * 9 * 9)


@pytest.mark.parametrize("name", Limits.__struct_fields__)
def test_the_flag_that_a_refusal_names_lifts_it(name):
    manifest = read({"tool": {"evalcell": {"limits": {name: getattr(MAXIMUM, name) + 1}}}}, 1)
    with pytest.raises(EvaluatorError) as refusal:
        settle(manifest, Operator())
    said = re.search(r"--limit (\w+)=(\S+)\.", str(refusal.value))
    granted = settle(manifest, Operator(limits={said[1]: _quantity(said[1], said[2])}))
    assert getattr(granted.limits, name) == getattr(MAXIMUM, name) + 1


def test_where_flag_and_sandbox_disagree_the_flag_counts():
    named = Named("mine", Configuration(network="full", isolation="evaluator", limits={"wall_seconds": 5}))
    asking = read({"tool": {"evalcell": {"network": "full", "isolation": "evaluator"}}}, 1)
    settled = settle(asking, Operator(named=named, network="none", isolation="row", limits={"wall_seconds": 2}))
    assert (settled.network, settled.isolation, settled.limits.wall_seconds) == ("none", "row", 2)
    denying = Named("mine", Configuration(network="none", isolation="row"))
    assert settle(asking, Operator(named=denying, network="full")).network == "full"


def test_a_flag_counts_more_than_the_sandbox_and_that_more_than_the_environment(monkeypatch):
    monkeypatch.setenv("EVALCELL_BASE_IMAGE", "of-the-environment")
    named = Named("mine", Configuration(base="of-the-sandbox", isolation="evaluator", limits={"wall_seconds": 3}))
    manifest = read({"tool": {"evalcell": {"limits": {"wall_seconds": 2, "load_seconds": 4}}}}, 1)

    def base(**said):
        settled = settle(manifest, Operator(**said))
        return settled.site.base, settled.sources["base"]

    assert base(base="of-the-flag", named=named) == ("of-the-flag", FLAG)
    assert base(named=named) == ("of-the-sandbox", SANDBOX)
    assert base() == ("of-the-environment", "EVALCELL_BASE_IMAGE")
    settled = settle(manifest, Operator(named=named, isolation="row"))
    assert (settled.isolation, settled.sources["isolation"]) == ("row", FLAG)
    assert (settled.limits.wall_seconds, settled.sources["limits.wall_seconds"]) == (3, SANDBOX)
    assert (settled.limits.load_seconds, settled.sources["limits.load_seconds"]) == (4, "file's block")


def test_an_engine_that_only_other_programs_can_use_is_no_obstacle_to_a_run_without_one(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "ssh://somewhere else")
    settled = settle(Manifest(), Operator())
    assert (settled.site.engine, settled.sources["engine"]) == ("ssh://somewhere else", "DOCKER_HOST")


def test_packages_and_variables_add_up_and_each_is_there_once():
    named = Named("mine", Configuration(dependencies=["numpy", "scipy"], env=["A"]))
    settled = settle(
        Manifest(dependencies=("numpy",), env=("A",)), Operator(named=named, dependencies=["pandas"], env=["B", "A"])
    )
    assert settled.dependencies == ("numpy", "pandas", "scipy")
    assert settled.sources["dependencies"] == f"file's block and flag and {SANDBOX}"
    assert set(settled.env) == {"A", "B"}


def test_what_a_block_may_not_say_is_refused():
    for key in ("base", "runtime", "engine", "disk_bytes", "cache_dir", "data_dir", "wall"):
        with pytest.raises(EvaluatorError, match="unknown key"):
            read({"tool": {"evalcell": {key: "x"}}}, 1)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"env": ["TOKEN=abc"]}, "name of a variable"),
        ({"cache_dir": "/elsewhere"}, "cache_dir"),
        ({"env": ["1TOKEN"]}, "name of a variable"),
        ({"dependencies": ["--index-url=x"]}, "requirement|option"),
        ({"network": "half"}, "network"),
        ({"limits": {"wall_seconds": 0}}, "goes from"),
        ({"base": "a b"}, "not a name or an address"),
        ({"engine": "tcp://127.0.0.1:99999"}, "99999"),
        ({"engine": "/var/run/docker.sock"}, "unix:///var/run/docker.sock"),
        ({"engine": "ssh://host"}, "ssh -N -L"),
        ({"wall": "wasm", "dependencies": ["numpy"]}, "is for containers"),
        ({"wall": "wasm", "network": "full"}, "is for containers"),
        ({"wall": "brick"}, "no wall 'brick'"),
        ({"dependency": []}, "Did you mean 'dependencies'"),
        ({"limits": {"wall_second": 1}}, "Did you mean 'wall_seconds'"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused_with_the_reason(said, message):
    with pytest.raises(UsageError, match=message):
        Configuration(**said)


@pytest.mark.parametrize(
    "given", [["TOKEN=hunter2-hunter2"], "hunter2-hunter2", {"TOKEN": "hunter2-hunter2"}, [["hunter2"]]]
)
def test_a_value_that_was_given_for_a_name_is_not_repeated(given):
    with pytest.raises(UsageError, match="env") as refusal:
        Configuration(env=given)
    assert "hunter2" not in str(refusal.value)
    with pytest.raises(UsageError, match="env") as refusal:
        evalcell.run("judge.py", [], env=given)
    assert "hunter2" not in str(refusal.value)


def test_every_setting_has_one_line_and_is_settled():
    known = {name for name, _, _ in settings()}
    assert all(field.description for _, field, _ in settings())
    assert all(said.flag or said.environment for _, _, said in settings())
    settled = settle(Manifest(), Operator()).sources
    assert known - {"limits"} <= set(settled)
    assert {*Site.__struct_fields__} - {"withheld"} == {*ENVIRONMENT} <= known
    assert {f"limits.{name}" for name in Limits.__struct_fields__} <= set(settled)
