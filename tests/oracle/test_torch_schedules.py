"""Orders of passes are those of torch.distributed.pipelining, for each of its named schedules."""

from unittest import mock

import pytest
from torch.distributed.pipelining import schedules
from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops
from torch.distributed.pipelining.stage import PipelineStage

from envs.pass_orders import Pass, PassKind, Ranks
from envs.plans.schedule import pass_order_of
from graphs.foundation.errors import InputError
from tests.envs.expansion.pipelines import interleaved, v_shaped

KINDS = {
    "FORWARD": PassKind.FORWARD,
    "FULL_BACKWARD": PassKind.BACKWARD,
    "BACKWARD_INPUT": PassKind.INPUT_GRADIENT,
    "BACKWARD_WEIGHT": PassKind.WEIGHT_GRADIENT,
}
SIZES = [
    *((2, 4), (4, 4), (4, 8), (8, 16), (3, 5), (3, 7), (4, 10), (5, 10)),
    *(pytest.param(*each, marks=pytest.mark.slow) for each in ((2, 8), (2, 16), (4, 16), (8, 4), (8, 8))),
]


def one_each(ranks: int) -> Ranks:
    return tuple((rank,) for rank in range(ranks))


def described(schedule: str, ranks: int, micro_batches: int) -> list[tuple[Pass, ...]]:
    """What a schedule says that it runs on each rank; of what it overlaps, forward comes first."""
    return [
        tuple(
            Pass(each.stage_index, KINDS[each.computation_type.name], int(each.microbatch_index or 0))
            for action in actions
            if action is not None
            for each in action.sub_actions or (action,)
            if each.computation_type.name in KINDS
        )
        for actions in get_schedule_ops(schedule, ranks, micro_batches)
    ]


def ran(schedule: str, ranks: int, micro_batches: int) -> list[tuple[Pass, ...]]:
    """What a schedule of one stage per rank runs on stages that only take notes.

    `Schedule1F1B` describes the last rank without its first forward pass, and runs it nevertheless.
    """
    passes = []
    for rank in range(ranks):
        done: list[Pass] = []
        stage = mock.MagicMock(spec=PipelineStage)
        for key, value in {"num_stages": ranks, "stage_index": rank, "has_backward": True}.items():
            setattr(stage, key, value)
        for kind in ("fwd_recv", "fwd_send", "bwd_recv", "bwd_send"):
            getattr(stage, f"get_{kind}_ops").return_value = []
        stage.forward_one_chunk = lambda m, *_, rank=rank, done=done, **__: done.append(Pass(rank, PassKind.FORWARD, m))
        stage.backward_one_chunk = lambda m, *_, rank=rank, done=done, **__: done.append(
            Pass(rank, PassKind.BACKWARD, m)
        )
        runner = schedules.get_schedule_class(schedule)(stage, micro_batches)
        with mock.patch.object(runner, "_initialize_stage"), mock.patch.object(runner, "_update_losses"):
            runner._step_microbatches([()] * micro_batches, [{}] * micro_batches)
        passes.append(tuple(done))
    return passes


NAMED = {
    "GPipe": ("gpipe", one_each, ran),
    "1F1B": ("early_backward_a", one_each, ran),
    "Interleaved1F1B": ("interleaved", interleaved, described),
    "LoopedBFS": ("looped_bfs", interleaved, described),
    "InterleavedZeroBubble": ("interleaved_zero_bubble", interleaved, described),
    "ZBVZeroBubble": ("zb_v", v_shaped, described),
    "DualPipeV": ("dualpipe_v", v_shaped, described),
}


@pytest.mark.parametrize(("ranks", "micro_batches"), SIZES)
@pytest.mark.parametrize("schedule", NAMED)
def test_each_rank_runs_its_passes_in_the_order_of_torch(schedule: str, ranks: int, micro_batches: int) -> None:
    name, shape, oracle = NAMED[schedule]
    order = pass_order_of(name).built
    try:
        expected = oracle(schedule, ranks, micro_batches)
    except ValueError:  # torch refuses these numbers
        if schedule != "1F1B":  # which torch refuses where a pipeline is not filled; DAPPLE does not
            with pytest.raises(InputError):
                order.passes(shape(ranks), micro_batches)
        return
    assert list(order.passes(shape(ranks), micro_batches)) == expected


def test_torch_has_no_other_schedule() -> None:
    source = {name for name in dir(schedules) if name.startswith("Schedule")}
    assert source == {f"Schedule{name}" for name in NAMED}
