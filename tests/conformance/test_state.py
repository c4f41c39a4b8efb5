"""One suite for every wall: from which state a row starts, and what chance and time it sees."""

from forms import Forms, evaluating
from sessions import lines, opened, run, values, with_plenty_of_stack

from evalcell_sandboxes import Outcome, Raised, Returned

SEEN = Forms("seen = []\n", "const seen = [];\n") + evaluating(
    "\n    seen.append(output)\n    return list(seen)", "seen.push(output);\n  return seen;"
)


def test_row_isolation_forgets_everything_a_row_did(wall):
    assert values(run(wall, SEEN, 1, 2, 3)) == [[1], [2], [3]]


def test_evaluator_isolation_keeps_state_from_row_to_row(wall):
    assert values(run(wall, SEEN, 1, 2, isolation="evaluator")) == [[1], [1, 2]]


def test_what_the_module_built_is_there_on_every_row(wall):
    source = Forms("import re\nWORD = re.compile('[a-z]+')\n", "const WORD = /[a-z]+/g;\n") + evaluating(
        "return WORD.findall(output)", "return output.match(WORD);"
    )
    assert values(run(wall, source, "ab 1 cd", "x")) == [["ab", "cd"], ["x"]]


def test_a_row_starts_fresh_even_if_nobody_came_back_for_more_after_the_last_one(wall):
    """A lane takes as many outcomes as it gave rows, and no more: what remains to be done must be done by then."""
    source = Forms("seen = []\n", "const seen = [];\n") + evaluating(
        "\n    seen.append(1)\n    return len(seen)", "return seen.push(1);"
    )

    def outcomes() -> list[Outcome]:
        with opened(wall, source) as session:
            return [next(session.run(lines(1, 2))) for _ in range(3)]

    assert values(with_plenty_of_stack(outcomes)) == [1, 1, 1]


# -- fit and aggregate ------------------------------------------------------------------------------------------------
FITTED = Forms(
    "total = 0\ndef fit(rows):\n    global total\n    total = sum(row['output'] for row in rows)\n",
    "let total = 0;\nexport function fit(rows) {\n  total = rows.reduce((sum, { output }) => sum + output, 0);\n}\n",
) + evaluating("\n    global total\n    total += output\n    return total", "return total += output;")


def test_fit_runs_once_and_every_row_starts_from_the_state_after_it(wall):
    with opened(wall, FITTED) as session:
        assert isinstance(session.fit(lines(1, 2)), Returned)
        assert values(list(session.run(lines(10, 20)))) == [13, 23]


HALF_FITTED = Forms(
    "state = []\ndef fit(rows):\n    state.append('half')\n    raise ValueError('fit')\n",
    "const state = [];\nexport function fit(rows) {\n  state.push('half');\n  throw new RangeError('fit');\n}\n",
) + evaluating("return state", "return state;")


def test_rows_never_run_in_a_state_that_fit_only_half_made(real_wall):
    def outcomes() -> list[Outcome]:
        with opened(real_wall, HALF_FITTED) as session:
            assert isinstance(session.fit(lines(1)), Raised)
            return [next(session.run(lines(1))) for _ in range(5)]

    assert all(isinstance(outcome, Raised) for outcome in with_plenty_of_stack(outcomes))


SUMMED = evaluating("return output", "return output;") + Forms(
    "def aggregate(results):\n    return {'sum': sum(r['score'] for r in results)}\n",
    "export function aggregate(results) {\n  return { sum: results.reduce((sum, { score }) => sum + score, 0) };\n}\n",
)


def test_aggregate_gets_the_results_in_a_fresh_state(wall):
    with opened(wall, SUMMED) as session:
        assert values([session.aggregate(b'[{"score": 1.5}, {"score": 2}]')]) == [{"sum": 3.5}]


LEFT = Forms(
    "state = []\ndef aggregate(results):\n    state.append('left')\n    return {'n': 1.0}\n",
    "const state = [];\nexport function aggregate(results) {\n  state.push('left');\n  return { n: 1.0 };\n}\n",
) + evaluating("return state", "return state;")


def test_a_row_after_aggregate_starts_fresh(wall):
    def outcomes() -> list[Outcome]:
        with opened(wall, LEFT) as session:
            assert isinstance(session.aggregate(b"[]"), Returned)
            return list(session.run(lines(1)))

    assert values(with_plenty_of_stack(outcomes)) == [[]]


# -- chance and time --------------------------------------------------------------------------------------------------
def test_the_same_row_draws_the_same_wherever_it_runs(real_wall):
    source = Forms("import random\n", "") + evaluating(
        "return [random.random(), random.gauss(0, 1), hash('text'), list({'a', 'b', 'c'})]",
        "return [Math.random(), Math.random(), [...new Set(['a', 'b', 'c'])]];",
    )
    first = values(run(real_wall, source, 1, 2, 1))
    second = values(run(real_wall, source, 1, 2, 1))
    assert first == second
    assert first[0] == first[2]
    assert first[0][:2] != first[1][:2]


def test_the_same_row_draws_the_same_numbers_under_shared_state(real_wall):
    source = Forms("import random\n", "") + evaluating(
        "return [random.random(), random.gauss(0, 1)]", "return [Math.random(), Math.random()];"
    )
    one, _, again = values(run(real_wall, source, 1, 2, 1, isolation="evaluator"))
    assert one == again


def test_randomness_at_module_level_follows_the_seed(real_wall):
    entropy = "os.urandom(4).hex()" if real_wall.name == "wasm" else "random.gauss(0, 1)"  # elsewhere that is real
    source = Forms(
        f"import os, random\nDRAWN = [{entropy}, random.random()]\n", "const DRAWN = [Math.random(), Math.random()];\n"
    ) + evaluating("return DRAWN", "return DRAWN;")

    def drawn(seed):
        with opened(real_wall, source, seed=seed) as session:
            return values(list(session.run(lines(1))))[0]

    first, again, other = drawn(1), drawn(1), drawn(2)
    assert first == again
    assert first[0] != other[0]
    assert first[1] != other[1]


def test_the_same_row_sees_the_same_world_wherever_it_runs(virtual_wall):
    source = (
        "import os, random, time, uuid, datetime\ndef evaluate(output):\n"
        "    return [random.random(), os.urandom(4).hex(), str(uuid.uuid4()), "
        "time.time(), str(datetime.datetime.now()), random.gauss(0, 1), hash('text')]\n"
    )
    first = values(run(virtual_wall, source, 1, 2, 1))
    second = values(run(virtual_wall, source, 1, 2, 1))
    assert first == second
    assert first[0] == first[2]
    assert first[0][:3] != first[1][:3]


def test_the_same_row_draws_the_same_entropy_under_shared_state(virtual_wall):
    source = "import os\ndef evaluate(output):\n    return os.urandom(4).hex()\n"
    one, other, again = values(run(virtual_wall, source, 1, 2, 1, isolation="evaluator"))
    assert one == again
    assert one != other


def test_a_row_does_not_depend_on_its_place_in_the_session(virtual_wall):
    """Not even the order of a set of objects, which lies where memory lies."""
    source = (
        "import random, time, uuid\nclass Thing: pass\ndef evaluate(output):\n    things = {Thing(): n for n in range(40)}\n"
        "    return [list(map(things.get, set(things))), random.random(), time.time(), str(uuid.uuid4()), hash('x')]\n"
    )
    first, *others = values(run(virtual_wall, source, *["same"] * 4))
    assert all(other == first for other in others)
