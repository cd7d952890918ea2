"""Rows of schedules: what PyTorch's runtime of pipelines reads, and can run."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.pipelining import schedules

from envs.pass_orders import PassOrder, Ranks
from envs.plans.plan import Plan
from envs.plans.schedule import AS_READY, Schedule
from envs.running.pipelined.schedule_rows import schedule_rows
from envs.running.pipelined.torch_schedules import schedule_of
from graphs.foundation.by_name import Extension
from graphs.foundation.errors import InputError
from tests.envs.expansion.pipelines import Pipeline, interleaved, servers, v_shaped


def rows_of(pipeline: Pipeline, order: Extension[PassOrder] | str, ranks: Ranks = ()) -> list[str]:
    rows = schedule_rows(pipeline.problem(), pipeline.plan(order, ranks=ranks)).rows()
    return [" ".join(row) for row in rows]


def test_rows_of_one_forward_one_backward() -> None:
    assert rows_of(Pipeline(2, 3), "early_backward_a") == ["0F0 0F1 0B0 0F2 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"]


def test_rows_of_parts_of_backward_passes() -> None:
    halves = Pipeline(2, 2, weight_gradient=1.0)
    assert rows_of(halves, "zb_h1") == ["0F0 0F1 0I0 0W0 0I1 0W1", "1F0 1I0 1F1 1I1 1W0 1W1"]


def test_without_an_order_passes_are_in_the_simulated_order() -> None:
    """Stage 0 has both forward passes before the first gradient; stage 1 prefers the earlier micro-batch."""
    assert rows_of(Pipeline(2, 2), AS_READY) == ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]


def test_replicas_of_a_stage_share_a_row() -> None:
    pipeline = Pipeline(2, 2)
    plan = pipeline.plan("gpipe", replicas=[2, 1])
    found = schedule_rows(pipeline.problem(servers(3)), plan)
    assert (found.ranks, found.devices) == (((0,), (1,)), ((0, 1), (2,)))
    assert [" ".join(row) for row in found.rows()] == ["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"]


def test_replicas_that_take_turns_have_no_common_row() -> None:
    pipeline = Pipeline(2, 2)
    plan = pipeline.plan("gpipe", replicas=[2, 1], sharing="turns")
    with pytest.raises(InputError, match="in turns"):
        schedule_rows(pipeline.problem(servers(3)), plan)


def test_stages_that_overlap_belong_to_no_rank() -> None:
    pipeline = Pipeline(2, 2)
    plan = pipeline.plan("gpipe", ranks=((0,), (1,)), replicas=[2, 1])
    moved = tuple((0,) if devices == (2,) else devices for devices in plan.devices)
    with pytest.raises(InputError, match="stages 0 and 1 share device 0"):
        schedule_rows(pipeline.problem(servers(3)), Plan(moved, schedule=plan.schedule))


SHAPES: dict[str, tuple[Callable[[int], Ranks], int]] = {  # ranks by how many there are, and stages on each
    AS_READY.name: (lambda ranks: (), 1), "gpipe": (lambda ranks: (), 1), "early_backward_a": (lambda ranks: (), 1),
    "early_backward_b": (lambda ranks: (), 1), "zb_h1": (lambda ranks: (), 1), "interleaved": (interleaved, 2),
    "looped_bfs": (interleaved, 2), "zb_v": (v_shaped, 2), "zb_h2": (lambda ranks: (), 1),
    "v_half": (v_shaped, 2), "v_min": (v_shaped, 2),
}  # fmt: skip


def test_stages_feed_no_earlier_ones() -> None:
    """A plan in micro-batches without stages of its own may have such ops; it is run as no pipeline."""
    problem, plan = Pipeline(3, 2).problem(), Pipeline(3, 2).plan()
    there_and_back = tuple((0,) if devices == (2,) else devices for devices in plan.devices)
    with pytest.raises(InputError, match="stages wait for each other"):
        schedule_rows(problem, Plan(there_and_back, schedule=Schedule(2)))


@given(
    order=st.sampled_from([*SHAPES, "as_ready, two stages on each"]),
    ranks=st.integers(2, 4),
    rounds=st.integers(1, 3),
    seconds=st.lists(st.floats(0.0, 3.0), min_size=24, max_size=24),
)
def test_torch_can_place_sends_and_receives(order: str, ranks: int, rounds: int, seconds: list[float]) -> None:
    """PyTorch validates the rows, and finds an order of sends and receives in which no rank waits forever."""
    shape, per_rank = SHAPES.get(order, (interleaved, 2))
    stages, micro_batches = ranks * per_rank, ranks * rounds
    times = [seconds[part * 8 :][:stages] for part in range(3)]
    pipeline = Pipeline(stages, micro_batches, forward=times[0], backward=times[1], weight_gradient=times[2])
    rows = schedule_rows(
        pipeline.problem(servers(ranks, latency=0.1)), pipeline.plan(order.split(",")[0], ranks=shape(ranks))
    )
    actions = {rank: list(map(schedules._Action.from_str, row)) for rank, row in enumerate(rows.rows())}
    on = schedules._validate_schedule(actions, ranks, stages, micro_batches)
    assert on == {stage: rank for rank, several in enumerate(rows.ranks) for stage in several}
    passes = sum(map(len, actions.values()))
    lowered = schedules._add_send_recv(actions, on.__getitem__, stages)
    sent = [each for row in lowered.values() for each in row if each.computation_type.value.startswith("SEND")]
    apart = sum(on[stage] != on[stage + 1] for stage in range(stages - 1))
    assert len(sent) == 2 * micro_batches * apart
    assert sum(map(len, lowered.values())) == passes + 2 * len(sent)


@pytest.mark.parametrize("lacking", ["_Action", "_PipelineScheduleRuntime"])
def test_a_version_of_pytorch_that_takes_no_rows_is_refused(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(2, 3)
    rows = schedule_rows(pipeline.problem(), pipeline.plan("gpipe"))
    monkeypatch.delattr(schedules, lacking)
    with pytest.raises(InputError, match=r"is not known to run the passes of order 'gpipe'; use one of"):
        schedule_of("gpipe", rows, 3, [], (1, 0))  # not in the order of its stages


def test_pytorchs_own_schedule_runs_as_many_micro_batches_as_stages_or_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its 1F1B refuses fewer: they are run by rows, which need a version that takes them."""
    pipeline = Pipeline(2, 2)
    rows = schedule_rows(pipeline.problem(), pipeline.plan("early_backward_a"))
    monkeypatch.setattr(schedules, "get_schedule_class", lambda name: lambda *_, **__: name)
    monkeypatch.delattr(schedules, "_Action")
    stages: list[Any] = [None]
    for micro_batches in (2, 3):
        assert schedule_of("early_backward_a", rows, micro_batches, stages, (0, 1)) == "1F1B"
    with pytest.raises(InputError, match="is not known to run the passes"):
        schedule_of("early_backward_a", rows, 1, stages, (0, 1))
