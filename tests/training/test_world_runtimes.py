"""Problems that are run in several ways: which is drawn, what its host takes, how much memory there is, which sizes."""

from collections import Counter
from itertools import chain, pairwise

import numpy as np
import pytest

from envs.costs.costs import costs_of
from envs.orders import priorities_of
from envs.prepared_problem import PreparedProblem
from envs.simulation.simulator import Simulator
from graphs.files.load import load_cluster
from graphs.host import HOSTS
from graphs.op_graph import Phase
from graphs.runtime import RUNTIMES, runtime_of
from tests.oracle.oracle import simulate
from training.learning.like_sizes import like_sizes
from training.learning.rollouts import PpoProblem
from training.problems.frozen import SHARES, frozen
from training.problems.random.random_problem import random_problem, world_problems
from training.problems.random.settings import World
from training.problems.runtimes import drawn_runtime
from training.recipe import ProblemSet, load_recipe
from training.runs.problem_sets import renewed_problems, validation_problems

WAYS = tuple(runtime_of(spec) for spec in ("parallelize", "parallelize", "run", "replay", "ideal"))
KINDS = ("layered", "components", "tree")


def test_a_problem_is_the_same_but_for_how_it_is_run_and_each_way_is_drawn_as_often_as_it_is_listed() -> None:
    small = World(units=(8, 20), host=(1.0, 1.0), tight=0.0)
    found = world_problems(KINDS, seed=0, count=200, settings=small, runtimes=WAYS)
    counted = Counter(problem.runtime.name for problem in found)
    assert {name: round(count / 40) for name, count in counted.items()} == {
        "parallelize": 2, "run": 1, "replay": 1, "ideal": 1,
    }  # fmt: skip
    ideal = world_problems(KINDS, seed=0, count=20, settings=small)
    assert [each.graph.fingerprint for each in ideal] == [each.graph.fingerprint for each in found[:20]]


def test_the_host_of_random_ops_is_drawn_in_proportion_to_their_seconds() -> None:
    ratios = []
    for seed in range(60):
        problem = random_problem(
            World(units=(8, 20), measured=0.0, training=0.0), "tree", np.random.default_rng(seed), runtimes=WAYS[:1]
        )
        assert problem.host is not None
        assert problem.host.backward / problem.host.forward == pytest.approx(54 / 44)
        assert problem.host.deferral / problem.host.forward == pytest.approx(46 / 44)
        typical = np.exp(np.log(costs_of(problem).op_seconds).mean())
        ratios.append(problem.host.forward / typical)
    assert min(ratios) < 0.03
    assert max(ratios) > 0.5


def test_there_is_no_host_where_a_cpu_is() -> None:
    rng = np.random.default_rng(0)
    fleet, cards = load_cluster("home_fleet"), load_cluster("p100:devices=2")
    for way in RUNTIMES.values():
        assert drawn_runtime([way], fleet, rng).host is None
        assert drawn_runtime([way], cards, rng) is way


def test_scarce_memory_has_a_plan_that_fits_and_random_placements_hardly_ever_do() -> None:
    settings = World(units=(24, 60), devices=(3, 8), scarce=1.0)
    fitting = []
    for problem in world_problems(KINDS, seed=1, count=24, settings=settings, runtimes=WAYS):
        drawn = np.random.default_rng(0).integers(0, len(problem.cluster), (50, len(problem.units)))
        fitting.append(Simulator(problem).run_batch(drawn).fits.mean())
    assert np.mean(fitting) < 0.2


def test_large_problems_have_no_more_pairs_of_units_and_devices_than_is_said() -> None:
    settings = World(units=(8, 600), devices=(2, 64), pairs=(600, 1200), grouped=0.0, training=0.0)
    pairs = [(len(p.units), len(p.cluster)) for p in world_problems(KINDS, seed=2, count=60, settings=settings)]
    assert max(units * devices for units, devices in pairs) <= 1200 + 64
    assert max(units for units, _ in pairs) > 200
    assert max(devices for _, devices in pairs) > 32


def test_the_recipe_draws_from_one_mixture_for_training_and_validation() -> None:
    recipe = load_recipe("world", ["validation.problems=30"])
    asked = {runtime.name for runtime in recipe.problems.runtimes}
    renewed = renewed_problems(recipe.problems, 0)
    assert renewed is not None
    assert {renewed.problem(number).runtime.name for number in range(40)} == asked
    assert {problem.runtime.name for problem in validation_problems(recipe)} == asked
    assert HOSTS["eager"].name in {host for p in validation_problems(recipe) for host in p.cluster.hosts}


def test_one_runtime_and_several_are_one_key() -> None:
    assert ProblemSet(runtime="run").runtimes == (RUNTIMES["run"],)
    several = load_recipe("released", ["problems.runtime=[run, parallelize:host=none,defer=false, ideal]"])
    assert [each.name for each in several.problems.runtimes] == ["run", "parallelize:host=none,defer=false", "ideal"]


@pytest.mark.parametrize("spec", ["parallelize", "run", "replay", "ideal"])
def test_random_problems_run_as_the_rules_of_their_runtime_say(spec: str) -> None:
    """In plain Python: when ops start, what their devices hold, and when the host has issued them."""
    for seed, kind in enumerate(("components", "layered", "recurrent", "attention")):
        settings = World(units=(8, 14), devices=(2, 4), training=1.0, grouped=0.5, host=(0.1, 1.0))
        problem = random_problem(settings, kind, np.random.default_rng(seed), runtimes=(runtime_of(spec),))
        placement = np.random.default_rng(seed).integers(0, len(problem.cluster), len(problem.units))
        seconds = costs_of(problem).op_seconds
        order = priorities_of(problem, None, seconds)
        expected = simulate(problem.as_issued, seconds.tolist(), placement[problem.graph.units].tolist(), order)
        found = Simulator(problem).timeline(placement)
        assert found.start == pytest.approx(expected.start, rel=1e-9)
        assert found.step_seconds == pytest.approx(expected.step_seconds, rel=1e-9)
        assert found.peak_bytes == pytest.approx(expected.peak_bytes, rel=1e-9)


def test_frozen_graphs_train_their_last_weights_alone() -> None:
    problem = random_problem(World(units=(20, 30), training=1.0), "chain", np.random.default_rng(3))
    graph = problem.graph
    trained = [frozen(graph, share).trained_weights.sum() for share in (0.0, *SHARES)]
    assert trained[0] == graph.weights.sum()
    assert all(more > less > 0 for more, less in pairwise(trained))
    last = frozen(graph, 1.0)
    assert (~last.frozen).sum() == 1
    assert (last.phase == Phase.FORWARD).sum() == (graph.phase == Phase.FORWARD).sum()


def test_batches_of_like_size_hold_all_problems_and_no_more_than_is_said() -> None:
    settings = World(units=(8, 200), devices=(2, 8))
    given = [
        PpoProblem(PreparedProblem(each), id) for each in world_problems(KINDS, seed=4, count=16, settings=settings)
    ]
    assert like_sizes(given, 0) == [given]
    batches = like_sizes(given, 1000)
    assert Counter(map(id, chain.from_iterable(batches))) == Counter(map(id, given))
    assert 1 < len(batches) < len(given)
    for batch in batches:
        problems = [each.prepared.problem for each in batch]
        padded = len(batch) * max(len(p.units) for p in problems) * max(len(p.cluster) for p in problems)
        assert padded <= 1000 or len(batch) == 1
