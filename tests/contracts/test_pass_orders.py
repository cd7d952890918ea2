"""What every order of passes promises, whichever it is; and what is refused of a user's own."""

import pickle
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from envs.pass_orders import Pass, Passes, PassKind, Ranks
from envs.pass_orders._v_shape import HOPS, building_block
from envs.plans.schedule import AS_READY, Schedule, pass_order_of
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from tests.envs.expansion.pipelines import interleaved, own_order, v_shaped
from tests.oracle.plain_pipeline import B, F, I, W, finishes, most_in_flight, step_seconds

NAMES = by_name.built_in("envs.pass_orders")
ZERO_BUBBLE = ("zb_h1", "zb_h2", "interleaved_zero_bubble", "zb_v", "dualpipe_v", "v_half", "v_min")
RANKS = range(1, 9)
MICRO_BATCHES = range(1, 17)


def one_each(ranks: int) -> Ranks:
    return tuple((rank,) for rank in range(ranks))


def activations(of_rank: tuple[Pass, ...]) -> int:
    """What a rank holds at most, in activations of a stage for a micro-batch."""
    return int(np.cumsum([(each.kind == F) - (each.kind in (B, W)) for each in of_rank]).max())


SHAPES = (one_each, interleaved, v_shaped, lambda ranks: interleaved(ranks, 3))


def accepted(name: str, ranks: Ranks, micro_batches: int) -> Passes | None:
    """The passes by an order, or None if it is not made for these ranks or micro-batches."""
    try:
        return pass_order_of(name).built.passes(ranks, micro_batches)
    except InputError:
        return None


@pytest.mark.parametrize("name", NAMES)
def test_every_pass_runs_once_and_none_waits_forever(name: str) -> None:
    made = 0
    for count in RANKS:
        for shape in SHAPES:
            ranks = shape(count)
            for micro_batches in MICRO_BATCHES:
                if (passes := accepted(name, ranks, micro_batches)) is None:
                    continue
                made += 1
                for stages, of_rank in zip(ranks, passes, strict=True):
                    assert len(set(of_rank)) == len(of_rank)
                    backward = {each._replace(kind=B) for each in of_rank if each.kind == I}
                    assert backward == {each._replace(kind=B) for each in of_rank if each.kind == W}
                    backward |= {each for each in of_rank if each.kind == B}
                    every = {(stage, m) for stage in stages for m in range(micro_batches)}
                    assert {(stage, m) for stage, _, m in backward} == every
                    assert {(stage, m) for stage, kind, m in of_rank if kind == F} == every
                done = finishes(passes, 1.0, 1.0, 1.0)  # it ends, forward before backward before weights
                assert len(done) == sum(map(len, passes))
    assert made >= 36  # 8 ranks with at least 2 P of up to 16 micro-batches are the fewest that an order accepts


@pytest.mark.parametrize("name", NAMES)
def test_the_same_passes_each_time_and_a_name_that_builds_it_again(name: str) -> None:
    order = pass_order_of(name).built
    assert order == pass_order_of(str(order.name)).built  # type: ignore[attr-defined]
    assert next(shape for shape in SHAPES if accepted(name, shape(2), 4) == accepted(name, shape(2), 4) is not None)


@pytest.mark.parametrize("in_flight", [0, 1, 3, 20])
@pytest.mark.parametrize("name", ["early_backward_a", "early_backward_b"])
def test_early_backward_keeps_its_limit_of_micro_batches_in_flight(name: str, in_flight: int) -> None:
    order = pass_order_of(f"{name}:in_flight={in_flight}").built
    for count in RANKS:
        for micro_batches in MICRO_BATCHES:
            for stage, of_rank in enumerate(order.passes(one_each(count), micro_batches)):
                limit = count - stage if name.endswith("_a") else 2 * (count - stage) - 1
                limit = min(limit, micro_batches, in_flight or micro_batches)
                assert most_in_flight(of_rank, stage) == limit


@pytest.mark.parametrize("name", ["gpipe", "early_backward_a", "early_backward_b"])
def test_equal_stages_give_the_bubble_of_a_pipeline(name: str) -> None:
    for count in RANKS:
        for micro_batches in MICRO_BATCHES:
            passes = pass_order_of(name).built.passes(one_each(count), micro_batches)
            assert step_seconds(passes, 2.0, 2.0, 1.0) == (micro_batches + count - 1) * 5.0


def test_interleaving_divides_the_bubble_by_the_stages_of_a_device() -> None:
    """Megatron-LM, section 2.2: (P - 1)(F + B) / v, of F and B of a device's share of the model."""
    for per_rank in (1, 2, 3):
        for count in RANKS:
            for micro_batches in (count, 2 * count, 4 * count):
                passes = pass_order_of("interleaved").built.passes(interleaved(count, per_rank), micro_batches)
                whole = per_rank * micro_batches * 5.0
                assert step_seconds(passes, 2.0, 2.0, 1.0) == whole + (count - 1) * 5.0


def test_one_stage_per_rank_of_an_interleaved_order_is_the_order_that_it_generalises() -> None:
    for count, micro_batches in ((2, 4), (4, 8), (4, 4), (8, 16)):
        ranks = one_each(count)
        for general, special in (("interleaved", "early_backward_b"), ("interleaved_zero_bubble", "zb_h1")):
            assert accepted(general, ranks, micro_batches) == accepted(special, ranks, micro_batches) is not None


def test_zb_h1_has_a_third_of_the_bubble_and_the_memory_of_1f1b() -> None:
    """Qi et al., table 1: (P - 1)(F + I - W) instead of (P - 1)(F + I + W); activations of P micro-batches."""
    for count in RANKS:
        for micro_batches in range(2 * count, 17):
            passes = pass_order_of("zb_h1").built.passes(one_each(count), micro_batches)
            for forward, inputs, weights in ((1.0, 1.0, 1.0), (2.0, 3.0, 1.0), (1.0, 4.0, 1.0), (3.0, 2.0, 2.0)):
                work = micro_batches * (forward + inputs + weights)
                bubble = (count - 1) * (forward + inputs - weights)
                assert step_seconds(passes, forward, inputs, weights) == work + bubble
            assert [most_in_flight(of_rank, stage) for stage, of_rank in enumerate(passes)] == [count] * count


def test_zb_h2_has_no_bubble_and_the_memory_of_almost_two_1f1b() -> None:
    """Qi et al., table 1: P (F + I - 2 W) <= 0 remains of the bubble; activations of 2 P - 1 micro-batches."""
    for count in RANKS:
        for micro_batches in range(2 * count, 17):
            passes = pass_order_of("zb_h2").built.passes(one_each(count), micro_batches)
            for forward, inputs, weights in ((1.0, 1.0, 1.0), (2.0, 3.0, 3.0), (3.0, 2.0, 4.0), (2.0, 3.0, 2.5)):
                work = micro_batches * (forward + inputs + weights)
                assert step_seconds(passes, forward, inputs, weights) == work + (count - 1) * forward
            assert [activations(of_rank) for of_rank in passes] == [2 * count - 1] * count


def test_zb_h2_in_the_memory_of_1f1b_is_zb_h1() -> None:
    for count in RANKS:
        for micro_batches in MICRO_BATCHES:
            of_1f1b = pass_order_of(f"zb_h2:in_flight={count}").built.passes(one_each(count), micro_batches)
            assert of_1f1b == pass_order_of("zb_h1").built.passes(one_each(count), micro_batches)


@pytest.mark.parametrize("name", ["zb_h2", "v_half", "v_min"])
def test_devices_hold_no_more_than_they_may_and_work_no_longer_with_more(name: str) -> None:
    """Activations are held from a forward pass to its weight gradient, as Qi et al. count them."""
    shape, per_rank = (one_each, 1) if name == "zb_h2" else (v_shaped, 2)
    for count in RANKS:
        seconds = []
        for in_flight in range(1, 2 * count + 1):
            passes = pass_order_of(f"{name}:in_flight={in_flight}").built.passes(shape(count), 12)
            assert max(map(activations, passes)) <= in_flight * per_rank
            seconds.append(step_seconds(passes, 1.0, 1.0, 1.0))
        assert min(seconds) == seconds[-1]


def test_v_half_and_v_min_hold_what_is_published_and_idle_no_longer() -> None:
    """Qi et al. (2024), table 2, and its demonstration: (P + 2) / 2 and (P + 4) / 3 micro-batches, rounded down.

    Of M micro-batches, devices idle about P / 2 M of a step with V-Half and 2 P / 3 M with V-Min, where F = I = W: that
    is at most 3 P and 4 P times the unit of half a device's share. As P - 1 of ZB-V, they are the same for any M.
    """
    for count, micro_batches in product(range(2, 10), (18, 27)):
        for name, held, idle in (
            ("v_min", (count + 4) // 3, 4 * count),
            ("v_half", (count + 2) // 2, 3 * count),
            (f"v_half:in_flight={count}", count, count - 1),
        ):
            passes = pass_order_of(name).built.passes(v_shaped(count), micro_batches)
            assert max(map(activations, passes)) <= 2 * held
            assert step_seconds(passes, 1.0, 1.0, 1.0) - 6 * micro_batches <= idle


def test_building_blocks_of_the_paper() -> None:
    """V-Min's turns as it has them; a sixth of how long both stages hold activations is (down + up) / 3 of P."""
    for count in range(3, 17):
        apart = 2 if count % 3 == 0 else 0
        expected = [
            [[rank, 2 * count - 1 - rank], [4 * count + apart - 1 - rank, 2 * count + apart + rank]]
            for rank in range(count)
        ]
        assert building_block(count, 1, 1).tolist() == expected
        for down, up in HOPS:
            turns = building_block(count, down, up)
            lifespans = (turns[:, 1] - turns[:, 0]).sum(axis=1) - 2 * (down + up) * (count - 1)
            assert 0 <= lifespans.min() <= lifespans.max() <= 8


@pytest.mark.parametrize("name", ZERO_BUBBLE)
def test_zero_bubble_is_no_slower_than_1f1b_of_the_same_devices(name: str) -> None:
    """F = I = W. A device's share of the model is the same: two of its stages take half as long as one."""
    compared = 0
    for count in RANKS:
        for micro_batches in MICRO_BATCHES:
            plain = pass_order_of("early_backward_a").built.passes(one_each(count), micro_batches)
            for shape in (one_each, v_shaped, interleaved):
                ranks = shape(count)
                if (passes := accepted(name, ranks, micro_batches)) is not None:
                    unit = 1.0 / len(ranks[0])
                    assert step_seconds(passes, unit, unit, unit) <= step_seconds(plain, 1.0, 1.0, 1.0)
                    compared += 1
    assert compared >= 36


@pytest.mark.parametrize("name", ["zb_v", "dualpipe_v", "interleaved_zero_bubble"])
def test_two_stages_per_device_leave_the_way_to_the_last_device(name: str) -> None:
    """F = I = W: of the bubble of 1F1B, 6 (P - 1) times the unit of half a device's share, a sixth remains."""
    for count in RANKS:
        ranks = interleaved(count) if name.startswith("inter") else v_shaped(count)
        for micro_batches in (2 * count, 4 * count):
            passes = pass_order_of(name).built.passes(ranks, micro_batches)
            assert step_seconds(passes, 1.0, 1.0, 1.0) == 6 * micro_batches + (count - 1)


def test_an_order_of_a_user_is_one_function(tmp_path: Path) -> None:
    spec = own_order(tmp_path, "((Pass(0, PassKind.FORWARD, 0), Pass(0, PassKind.BACKWARD, 0)),)")
    assert pass_order_of(spec).built.passes(((0,),), 1) == ((Pass(0, F, 0), Pass(0, B, 0)),)
    with pytest.raises(InputError, match=r"mine\.py.*ZeroDivisionError"):
        pass_order_of(own_order(tmp_path, "1 / 0")).built.passes(((0,),), 1)


def test_what_is_no_order_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def build():\n    return 3\n")
    with pytest.raises(InputError, match="expected an order of passes, with a method `passes`, got int"):
        pass_order_of(f"{tmp_path / 'mine.py'}:build").loaded()


@pytest.mark.parametrize(
    ("name", "ranks", "micro_batches", "sentence"),
    [
        ("early_backward_a", ((0, 1),), 2, "runs one stage on each device, in their order; got stages [(0, 1)]"),
        ("zb_h1", ((1,), (0,)), 2, "runs one stage on each device, in their order; got stages [(1,), (0,)]"),
        (
            "interleaved",
            ((0, 1), (2, 3)),
            2,
            "takes stages on a device that are 2 apart, such as [(0, 2), (1, 3)]; got stages",
        ),
        ("interleaved", ((0, 2), (1, 3)), 5, "5 micro-batches on 2 devices in 2 rounds, which must be equal; use 4 or"),
        ("zb_v", ((0, 2), (1, 3)), 4, "down and up again, here [(0, 3), (1, 2)]; got stages [(0, 2), (1, 3)]"),
        ("v_half", ((0, 2), (1, 3)), 4, "the order 'v_half' takes two stages on a device, down and up again"),
        ("zb_h2", ((0, 2), (1, 3)), 4, "the order 'zb_h2' runs one stage on each device"),
        ("dualpipe_v", ((0, 3), (1, 2)), 3, "needs at least as many micro-batches as stages, 4 here; got 3"),
    ],
)
def test_what_an_order_is_not_made_for_is_refused_by_one_sentence(
    name: str, ranks: Ranks, micro_batches: int, sentence: str
) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        pass_order_of(name).built.passes(ranks, micro_batches)


@pytest.mark.parametrize("times", ["1+1+1", "1+1+1+0+0", "0+1+1+0", "1+1+1+-1", "1+1+1+inf", "nan+1+1+1", "quick"])
def test_times_of_passes_are_four_numbers(times: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"v_half: times is {times!r}; expected four numbers")):
        pass_order_of(f"v_half:times={times}").loaded()


def test_a_pass_is_written_as_drawings_show_it() -> None:
    assert str(Pass(2, PassKind.INPUT_GRADIENT, 7)) == "I7"


def test_a_schedule_takes_a_spec_and_holds_the_order_that_it_names() -> None:
    schedule = Schedule(4, order="early_backward_a:in_flight=2")
    assert schedule == Schedule(4, order=pass_order_of("early_backward_a:in_flight=2")) != Schedule(4, order="gpipe")
    assert schedule.order.built == pass_order_of("early_backward_a:in_flight=2").built
    again: Schedule = pickle.loads(pickle.dumps(schedule))
    assert (again, hash(again)) == (schedule, hash(schedule))
    assert eval(repr(schedule)) == schedule, "as text, as plans are written"
    assert replace(schedule, order="as_ready").order is AS_READY is Schedule().order
    assert Schedule(4, order="1F1B:in_flight=2") == schedule
    assert Schedule(4, order="Interleaved1F1B").order.name == "interleaved"
    with pytest.raises(InputError, match="unknown pass order 'gpip'; did you mean 'gpipe'"):
        Schedule(4, order="gpip")
    with pytest.raises(InputError, match="unknown pass order 'as_ready'"):
        AS_READY.loaded()
