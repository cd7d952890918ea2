"""Random chains: training steps that a policy of whole plans learns from."""

import numpy as np
import pytest

from envs.prepared_problem import PreparedProblem
from graphs.foundation.errors import InputError
from placers.learned.whole_plans.candidates import Candidates
from training.problems.random.random_chains import CHAINS, DEVICES, LAYERS, SAMPLES, random_chain


@pytest.mark.parametrize("kind", CHAINS)
def test_they_follow_from_their_random_numbers_and_keep_to_their_bounds(kind: str) -> None:
    for seed in range(5):
        one, again = (random_chain(np.random.default_rng(seed), kind) for _ in range(2))
        assert PreparedProblem(one).evaluator.run_batch(np.zeros((1, one.graph.num_units), int)).step_seconds == (
            PreparedProblem(again).evaluator.run_batch(np.zeros((1, again.graph.num_units), int)).step_seconds
        )
        assert one.graph.is_training
        assert one.graph.samples in SAMPLES
        assert DEVICES[0] <= len(one.cluster) <= DEVICES[1]
        layers = Candidates(one).layers
        assert len(layers) <= LAYERS[1]
        assert layers.weight_gradients_apart(one)


def test_a_kind_that_there_is_not_is_named() -> None:
    with pytest.raises(InputError, match="unknown kind of chain 'blokcs'"):
        random_chain(np.random.default_rng(0), "blokcs")
