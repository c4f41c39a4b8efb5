import math

import pytest

from evalcell.blocks import read
from evalcell.configuration import BLOCK, DEFAULT, FLAG, MAXIMUM, Operator
from evalcell.errors import EvaluatorError, UsageError
from evalcell.manifest import Manifest
from evalcell.output import Output
from evalcell.settings import settle
from evalcell_sandboxes import Isolation, Limits


def block(**own):
    return read({"tool": {"evalcell": own}}, 1)


def test_no_block_means_every_default(monkeypatch):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    settings = settle(Manifest(), Operator())
    assert settings.limits == Limits()
    assert settings.isolation is Isolation.ROW
    assert settings.output == Output()
    assert set(settings.sources.values()) == {DEFAULT}


def test_a_block_is_read_into_plain_values():
    manifest = read(
        {
            "requires-python": ">=3.11",
            "dependencies": ["scikit-learn>=1.5"],
            "tool": {
                "evalcell": {
                    "output": {"range": [0.0, "inf"], "direction": "minimize", "threshold": 0},
                    "bind": {"output": "output.text"},
                    "set": {"case": True},
                    "limits": {"wall_seconds": 1.0},
                    "fit_rows": 10,
                }
            },
        },
        1,
    )
    assert manifest.output == Output("continuous", 0.0, math.inf, {}, "minimize", 0.0)
    assert manifest.limits == {"wall_seconds": 1.0}
    assert (manifest.bind, manifest.set, manifest.fit_rows) == ({"output": "output.text"}, {"case": True}, 10)
    assert (manifest.dependencies, manifest.requires_python) == (("scikit-learn>=1.5",), ">=3.11")


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ({"labels": {"good": 1.0, "bad": 0}}, "categorical"),
        ({"labels": ["a", "b"]}, "categorical"),
        ({"range": [0, 1]}, "continuous"),
        ({"type": "freeform"}, "freeform"),
        ({"threshold": 0.5}, "freeform"),
    ],
)
def test_the_kind_of_output_follows_from_what_is_given(output, kind):
    assert block(output=output).output.kind == kind


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"dependecies": []}, "unknown key 'dependecies'. Did you mean 'dependencies'"),
        ({"tool": {"uv": {"index": []}}}, "tool.uv"),
        ({"tool": {"evalcell": {"limit": {}}}}, "unknown key 'limit'. Did you mean 'limits'"),
        (
            {"tool": {"evalcell": {"limits": {"wall_second": 1}}}},
            "unknown key 'limits.wall_second'. Did you mean 'wall_seconds'",
        ),
        ({"tool": {"evalcell": {"output": {"treshold": 1}}}}, "Did you mean 'threshold'"),
        ({"tool": {"evalcell": {"limits": {"wall_seconds": -1}}}}, "wall_seconds"),
        ({"tool": {"evalcell": {"limits": {"wall_seconds": "inf"}}}}, "wall_seconds"),
        ({"tool": {"evalcell": {"isolation": "none"}}}, "isolation"),
        ({"tool": {"evalcell": {"output": {"range": [1, 0]}}}}, "lower bound"),
        ({"tool": {"evalcell": {"output": {"range": [0, 1], "labels": ["a"]}}}}, "keep one"),
        ({"tool": {"evalcell": {"output": {"type": "categorical"}}}}, "needs its labels"),
        ({"tool": {"evalcell": {"output": {"range": ["nan", 1]}}}}, "lower bound|nan"),
        ({"tool": {"evalcell": {"output": {"labels": {"good": "inf"}}}}}, "labels"),
        ({"tool": {"evalcell": {"output": {"threshold": "nan"}}}}, "threshold"),
        ({"dependencies": ["pkg @ https://example.org/x.whl"]}, "points at an address"),
        ({"dependencies": ["--index-url x"]}, "is an option of an installer"),
        ({"dependencies": ["-r other.txt"]}, "is an option of an installer"),
        ({"dependencies": "scikit-learn"}, "dependencies"),
        ({"requires-python": "3.11 or so"}, "not a version specifier"),
        ({"tool": 3}, "must be a table"),
        ({"tool": {"evalcell": 3}}, "must be a table"),
    ],
)
def test_a_mistake_in_the_block_is_named(table, message):
    with pytest.raises(EvaluatorError, match=message):
        read(table, 1)


def test_flags_win_over_the_block_and_the_block_over_defaults():
    manifest = block(
        limits={"wall_seconds": 1.0, "result_bytes": 500}, bind={"output": "a", "reference": "b"}, set={"k": 1}
    )
    settings = settle(manifest, Operator(limits={"wall_seconds": 3}, bind={"k": "path"}, set={"output": 5}))
    assert (settings.limits.wall_seconds, settings.limits.result_bytes) == (3.0, 500)
    assert (settings.bind, settings.set) == ({"reference": "b", "k": "path"}, {"output": 5})
    assert settings.sources["limits.wall_seconds"] == FLAG
    assert settings.sources["limits.result_bytes"] == BLOCK
    assert settings.sources["limits.memory_bytes"] == DEFAULT
    assert settings.sources["parameters.k"] == FLAG
    assert settings.sources["parameters.reference"] == BLOCK


@pytest.mark.parametrize(
    ("asked", "flag"),
    [
        ({"isolation": "evaluator"}, "--isolation evaluator"),
        ({"network": "full"}, "--network"),
        ({"env": ["API_KEY"]}, "--env"),
        ({"limits": {"wall_seconds": 3600}}, "--limit wall_seconds=3600"),
        ({"limits": {"memory_bytes": 2**40}}, "--limit memory_bytes="),
        ({"limits": {"asset_bytes": 2**30}}, "--limit asset_bytes="),
    ],
)
def test_what_a_block_may_not_grant_itself_is_refused_and_the_flag_named(asked, flag):
    with pytest.raises(EvaluatorError, match=flag):
        settle(block(**asked), Operator())


def test_the_operator_grants_what_the_block_asks_for():
    assert (
        settle(block(isolation="evaluator"), Operator(isolation=Isolation.EVALUATOR)).isolation is Isolation.EVALUATOR
    )
    assert settle(block(isolation="evaluator"), Operator(isolation=Isolation.ROW)).isolation is Isolation.ROW
    assert (
        settle(block(limits={"wall_seconds": 3600}), Operator(limits={"wall_seconds": 3600})).limits.wall_seconds
        == 3600
    )


def test_a_block_may_lower_its_limits_and_raise_them_up_to_the_maximum():
    assert settle(block(limits={"wall_seconds": 0.5}), Operator()).limits.wall_seconds == 0.5
    assert (
        settle(block(limits={"wall_seconds": MAXIMUM.wall_seconds}), Operator()).limits.wall_seconds
        == MAXIMUM.wall_seconds
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("wall_secs", 1),
        ("wall_seconds", 0),
        ("memory_bytes", 1000),
        ("wall_seconds", float("inf")),
        ("wall_seconds", float("nan")),
    ],
)
def test_a_limit_that_cannot_work_is_refused(name, value):
    with pytest.raises(UsageError):
        settle(Manifest(), Operator(limits={name: value}))
