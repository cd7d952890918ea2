"""Launches of collectives, as many as Megatron-LM and DDP have: none of them depends on how a sum is added up."""

import numpy as np
import pytest

import placelab
from graphs.host import Host

BLOCKS = 2
VOCABULARY = 4  # of what the embedding finds, of the softmax in each direction, and of the gradient of the head's input
MODEL = f"transformer:layers={BLOCKS},width=64,heads=4,sequence=16,vocabulary=64,batch=16"


def launches(way: str) -> list[int]:
    """(devices,) of a way of parallelizing the model over four."""
    placed = placelab.place(
        MODEL, cluster="p100:devices=4", placer=f"parallel:{way}", host="30us", budget=0, groups=None
    )
    written = placed.timeline.expansion
    assert written is not None
    problem = written.problem
    assert problem.runtime.host == Host.uniform(30e-6, per_device=True)
    assert problem.collectives is not None
    counts: list[int] = np.bincount(written.placement, problem.collectives.launches).astype(int).tolist()
    return counts


@pytest.mark.parametrize("kind", ["ring", "direct", "hierarchical", "nccl"])
def test_replicas_sum_up_a_bucket_once(kind: str) -> None:
    assert launches(f"dp=4,all_reduce={kind}") == [1] * 4  # all gradients are in one bucket


@pytest.mark.parametrize("kind", ["ring", "direct", "nccl"])
def test_a_divided_block_has_two_all_reduces_in_each_pass(kind: str) -> None:
    """Shoeybi et al., "Megatron-LM" (2019), figure 4. The vocabulary is divided as well, in its section 3."""
    assert launches(f"tp=4,all_reduce={kind}") == [BLOCKS * 4 + VOCABULARY] * 4


def test_replicas_of_divided_blocks_have_both() -> None:
    assert launches("dp=2,tp=2,all_reduce=nccl") == [BLOCKS * 4 + VOCABULARY + 1] * 4


def test_all_reduces_are_launched_for_every_micro_batch_and_for_what_is_computed_again() -> None:
    """The output of the first stage is not computed again. What passes between stages is no collective."""
    passes = 4 * 2  # of two micro-batches
    found = launches("tp=2,pp=2,micro_batches=2,recompute=true,recompute_at=late,all_reduce=nccl")
    embedding, loss = 2 * 2, 3 * 2 + 2  # each for both micro-batches; one forward all-reduce of either is done again
    assert found == [passes + 2 + embedding] * 2 + [passes + 4 + loss] * 2


def test_blocks_that_are_repeated_launch_what_is_summed_inside_of_them() -> None:
    """Attention's sum is repeated, but not what leaves a block, nor what the embedding and the loss add up."""
    found = launches("tp=2,pp=2,micro_batches=2,recompute=true,all_reduce=nccl")
    passes, attention, embedding, loss = 4 * 2, 1 * 2, 1 * 2, 3 * 2  # each for both micro-batches
    assert found == [passes + attention + embedding] * 2 + [passes + attention + loss] * 2
