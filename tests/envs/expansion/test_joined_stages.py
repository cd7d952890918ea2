"""Stages that follow one another on a device run as one: only what each of them keeps is its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from envs.expansion.joined_passes import joined_passes
from envs.pass_orders import Pass, PassKind
from envs.plans.schedule import pass_order_of
from envs.simulation.simulator import simulate
from graphs.foundation.errors import InputError
from tests.envs.expansion.pipelines import Pipeline, servers

TWICE = ((0, 1), (2, 3))  # stages of two devices
M = 6


@pytest.mark.parametrize("order", ["early_backward_a", "early_backward_b", "zb_h1"])
def test_two_halves_of_a_stage_take_as_long_as_the_stage(order: str) -> None:
    halves, whole = Pipeline(4, M, forward=1.0, backward=2.0), Pipeline(2, M, forward=2.0, backward=4.0)
    taken = simulate(halves.problem(servers(2)), halves.plan(order, ranks=TWICE)).step_seconds
    assert taken == pytest.approx(simulate(whole.problem(), whole.plan(order)).step_seconds)


def test_a_part_that_is_computed_again_keeps_what_enters_it_for_each_micro_batch() -> None:
    """Of three stages of the first device the first two give up their inside: one output of two for each in flight."""
    chain = Pipeline(4, M, forward=1.0, backward=2.0, activation=1.0)
    ranks, problem = ((0, 1, 2), (3,)), chain.problem(servers(2))
    kept, again = (
        simulate(problem, chain.plan("early_backward_a", ranks=ranks, recompute=recompute))
        for recompute in ((), (0, 1))
    )
    assert again.step_seconds == pytest.approx(
        kept.step_seconds + 2 * M
    )  # both run forward again, on the busier device
    in_flight, stages = 2, 3
    assert kept.peak_bytes[0] == in_flight * stages
    assert again.peak_bytes[0] < kept.peak_bytes[0]


def test_orders_of_several_stages_on_a_rank_have_them_as_they_are() -> None:
    order = pass_order_of("interleaved").built
    ranks = ((0, 2), (1, 3))
    assert joined_passes(order, ranks, 4) == order.passes(ranks, 4)
    joined = joined_passes(order, TWICE, 4)  # is not made for these
    assert joined[1][:4] == tuple(
        Pass(stage, kind, 0)
        for kind, stages in ((PassKind.FORWARD, (2, 3)), (PassKind.BACKWARD, (3, 2)))
        for stage in stages
    )


def test_stages_apart_on_a_rank_are_refused_as_before() -> None:
    order = pass_order_of("early_backward_a").built
    with pytest.raises(InputError, match="one stage on each device"):
        joined_passes(order, ((0, 2), (1,)), 4)


def test_numbers_of_devices_do_not_matter() -> None:
    chain = Pipeline(3, M, forward=1.0, backward=2.0)
    problem = chain.problem(servers(2))
    plan = chain.plan("early_backward_a", ranks=((0, 1), (2,)))
    swapped = replace(plan, devices=tuple((1 - device,) for (device,) in plan.devices))
    both = [simulate(problem, each) for each in (plan, swapped)]
    assert both[0].step_seconds == both[1].step_seconds
    assert np.array_equal(both[0].peak_bytes, both[1].peak_bytes[::-1])
