"""Axes and views: what a graph's dimensions are taken apart into, and how views look at tensors."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphs.descriptions.axes import Axes, factors_of
from graphs.notation.signatures import Read, View
from graphs.notation.views import Reindexed, Reshaped, reshaped, steps

shapes = st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), max_size=4)


@given(shapes, st.randoms(use_true_random=False))
def test_groups_of_a_reshape_hold_as_many_elements_on_both_sides(before: list[int], draw) -> None:  # type: ignore[no-untyped-def]
    primes = [p for size in before for p in {2: [2], 3: [3], 4: [2, 2], 6: [2, 3], 8: [2, 2, 2]}.get(size, [])]
    after: list[int] = []
    while primes:
        taken = draw.randint(1, len(primes))
        after.append(math.prod(primes[:taken]))
        primes = primes[taken:]
    found = reshaped(tuple(before), tuple(after))
    assert found is not None
    for ours, theirs in found.groups:
        assert math.prod(before[i] for i in ours) == math.prod(after[i] for i in theirs) > 1
    assert [i for ours, _ in found.groups for i in ours] == [i for i, size in enumerate(before) if size > 1]
    assert [i for _, theirs in found.groups for i in theirs] == [i for i, size in enumerate(after) if size > 1]


def factors(axes: Axes) -> list[tuple[int, ...]]:
    found = factors_of(axes)
    return [found.of(axis) for axis in range(len(axes.sizes))]


def test_both_sides_of_a_reshape_have_the_same_factors() -> None:
    axes = Axes()
    width, heads, wide = axes.add([512, 8, 64])
    axes.groups.append(((width,), (heads, wide)))
    assert factors(axes) == [(8, 64), (8,), (64,)]


def test_linked_axes_have_the_same_factors_wherever_they_are() -> None:
    axes = Axes()
    width, heads, wide, other, third = axes.add([512, 8, 64, 512, 512])
    axes.link(width, other)
    axes.link(third, other)
    axes.groups.append(((width,), (heads, wide)))
    assert factors(axes)[3:] == [(8, 64), (8, 64)]


def test_a_third_of_a_dimension_is_one_of_three() -> None:
    axes = Axes()
    whole, part, heads, wide = axes.add([1536, 512, 8, 64])
    axes.link(whole, part, 512)
    axes.groups.append(((part,), (heads, wide)))
    assert factors(axes)[:2] == [(3, 8, 64), (1, 8, 64)]


def test_parts_of_unequal_sizes_have_the_factor_that_divides_them_all() -> None:
    axes = Axes()
    whole, query, key = axes.add([6, 4, 2])
    axes.link(whole, query)
    axes.link(whole, key, 4)
    assert factors(axes) == [(3, 2), (2, 2), (1, 2)]


def test_what_begins_anywhere_is_not_taken_apart() -> None:
    axes = Axes()
    tokens, patches, rows, columns = axes.add([197, 196, 14, 14])
    axes.link(tokens, patches, 1)
    axes.groups.append(((patches,), (rows, columns)))
    assert factors(axes) == [(197,), (196,), (14,), (14,)]


def test_of_two_reshapes_that_do_not_agree_the_first_one_counts() -> None:
    axes = Axes()
    whole, two, three, three_first, two_last = axes.add([6, 2, 3, 3, 2])
    axes.groups += [((whole,), (two, three)), ((whole,), (three_first, two_last))]
    assert factors(axes)[0] == (2, 3)


@given(st.data())
def test_factors_multiply_to_their_axis_and_strides_divide_each_other(data: st.DataObject) -> None:
    axes = Axes()
    numbers = axes.add(data.draw(st.lists(st.sampled_from([1, 2, 4, 6, 8, 12, 24]), min_size=2, max_size=12)))
    some = st.lists(st.sampled_from(numbers), min_size=1, max_size=3, unique=True)
    for _ in range(data.draw(st.integers(0, 6))):
        left, right = data.draw(some), data.draw(some)
        sizes = [math.prod(axes.sizes[i] for i in side) for side in (left, right)]
        if len(left) == len(right) == 1:
            axes.link(left[0], right[0], data.draw(st.sampled_from([0, 2])))
        elif sizes[0] == sizes[1]:
            axes.groups.append((tuple(left), tuple(right)))
    found = factors_of(axes)
    for axis in numbers:
        assert math.prod(found.of(axis)) == axes.sizes[axis]
    for strides in found.strides:
        assert all(larger % smaller == 0 and larger > smaller > 1 for larger, smaller in pairwise(strides))


# ---- views -----------------------------------------------------------------------------------------------

aten = torch.ops.aten
X = torch.arange(24).reshape(2, 3, 4)
VIEWS: list[tuple[torch.Tensor, list[View]]] = [
    (X.permute(2, 0, 1), [View("aten.permute", (4, 2, 3), ([2, 0, 1],))]),
    (X.transpose(0, -1), [View("aten.transpose", (4, 3, 2), (0, -1))]),
    (X.view(6, 4), [View("aten.view", (6, 4), ([6, 4],))]),
    (X.unsqueeze(1), [View("aten.unsqueeze", (2, 1, 3, 4), (1,))]),
    (X.select(1, -1), [View("aten.select", (2, 4), (1, -1))]),
    (X[:, 1:], [View("aten.slice", (2, 2, 4), (1, 1, 9223372036854775807))]),
    (
        aten.split_with_sizes(X, [1, 3], -1)[1],
        [View("aten.split_with_sizes", (), ([1, 3], -1)), View("getitem", (2, 3, 3), (1,))],
    ),
    (aten.split(X, 2, 1)[1], [View("aten.split", (), (2, 1)), View("getitem", (2, 1, 4), (1,))]),
    (X.unbind(1)[2], [View("aten.unbind", (), (1,)), View("getitem", (2, 4), (2,))]),
    (X.detach(), [View("aten.detach", (2, 3, 4))]),
]


@pytest.mark.parametrize(("seen", "views"), VIEWS)
def test_a_step_says_where_the_elements_of_a_view_are(seen: torch.Tensor, views: list[View]) -> None:
    found = steps(Read(tuple(seen.shape), "int64", (2, 3, 4), tuple(views)))
    assert found is not None
    for index in np.ndindex(*seen.shape):
        at = index
        for step in reversed(found):
            at = source_of(step, at)
        assert X[at] == seen[index]


def source_of(step: Reindexed | Reshaped, index: tuple[int, ...]) -> tuple[int, ...]:
    if isinstance(step, Reshaped):
        return tuple(map(int, np.unravel_index(np.ravel_multi_index(index, step.after), step.before)))
    at = dict(step.fixed) | {
        source: i + start for source, i, start in zip(step.source, index, step.start, strict=True) if source is not None
    }
    return tuple(at[i] for i in range(len(step.before)))


def test_an_expanded_dimension_is_read_at_its_only_index() -> None:
    [step] = steps(Read((5, 2, 3), "float32", (1, 3), (View("aten.expand", (5, 2, 3), ([5, 2, 3],)),))) or ()
    assert step == Reindexed((1, 3), (5, 2, 3), (None, None, 1), (0, 0, 0), ((0, 0),))


@pytest.mark.parametrize("view", [View("aten.diagonal", (2,)), View("getitem", (3,), (1,))])
def test_a_view_of_another_kind_is_not_known(view: View) -> None:
    assert steps(Read(view.shape, "float32", (2, 2), (view,))) is None
