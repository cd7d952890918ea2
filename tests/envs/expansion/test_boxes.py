"""Boxes are compared with the sets of their elements."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from envs.expansion.shards.boxes import adding, cover, moved, summands, volume, without
from graphs.notation.ranges import Box, Range, elements, intersection

SIDE = 6


@st.composite
def boxes(draw: st.DrawFn, dimensions: int = 2) -> Box:
    limits = [sorted(draw(st.tuples(*[st.integers(0, SIDE - 1)] * 2))) for _ in range(dimensions)]
    return tuple(Range(low, high) for low, high in limits)


def points(box: Box) -> set[tuple[int, ...]]:
    return set(product(*(range(each.low, each.high + 1) for each in box)))


@given(boxes(), boxes())
def test_what_is_left_of_a_box_is_disjoint(box: Box, hole: Box) -> None:
    left = [points(each) for each in without(box, hole)]
    assert set().union(*left) == points(box) - points(hole)
    assert sum(map(len, left)) == len(points(box) - points(hole))


@given(boxes(), st.lists(boxes(), min_size=1, max_size=4).map(tuple), st.randoms())
def test_pieces_are_all_that_is_held_of_what_is_needed_each_once(needed: Box, held: tuple[Box, ...], order) -> None:  # type: ignore[no-untyped-def]
    numbers = list(range(len(held)))
    order.shuffle(numbers)
    pieces = cover(needed, held, tuple(numbers))
    assert all(points(box) <= points(held[number]) for number, box in pieces)
    found = set().union(*(points(box) for _, box in pieces))
    assert found == points(needed) & set().union(*map(points, held))
    assert sum(elements(box) for _, box in pieces) == len(found)
    assert volume(held) == len(set().union(*map(points, held)))


@given(st.lists(boxes(), min_size=2, max_size=4).map(tuple), st.data())
def test_sums_are_complete_where_they_are_read_and_move_no_more_than_adding_all_everywhere(
    parts: tuple[Box, ...], data: st.DataObject
) -> None:
    whole = (Range(0, SIDE - 1),) * 2
    parts = (whole, *parts[1:])
    place = st.integers(-1, len(parts) - 1)
    wanted = tuple(data.draw(st.lists(st.tuples(place, boxes()), min_size=1, max_size=4)))
    sums = adding(parts, wanted)
    held = set().union(*map(points, sums))
    assert all(points(box) <= held for _, box in wanted)
    assert moved(parts, sums, wanted) <= moved(parts, (whole,) * len(parts), wanted)


def test_the_sum_of_two_halves_of_a_batch_is_scattered_and_gathered() -> None:
    """Or only scattered, where each device wants a part; and only added up where one wants all of it."""
    whole, (left, right) = (Range(0, 7), Range(0, 3)), ((Range(0, 3), Range(0, 3)), (Range(4, 7), Range(0, 3)))
    parts = (whole, whole)
    both = ((0, whole), (1, whole))
    assert adding(parts, both) == (left, right)
    assert moved(parts, (left, right), both) == 2 * 32
    columns = tuple((Range(0, 7), each) for each in (Range(0, 1), Range(2, 3)))
    assert adding(parts, tuple(enumerate(columns))) == columns
    assert moved(parts, columns, tuple(enumerate(columns))) == 32
    first, nothing = adding(parts, ((0, whole),))
    assert (first, elements(nothing)) == (whole, 0)


def test_where_readers_want_much_all_is_added_up_everywhere() -> None:
    def box(rows: tuple[int, int], columns: tuple[int, int]) -> Box:
        return Range(*rows), Range(*columns)

    parts = (box((0, 5), (0, 5)), box((0, 0), (0, 0)))
    wanted = ((0, box((1, 3), (0, 0))), (0, box((1, 4), (0, 5))), (1, box((0, 3), (0, 1))), (-1, box((0, 0), (0, 2))))
    assert moved(parts, adding(parts, wanted), wanted) <= moved(parts, (parts[0],) * 2, wanted) == 40


def test_gradients_of_windows_overlap_at_their_borders_and_are_cut_there() -> None:
    rows = tuple((Range(low, high),) for low, high in ((0, 4), (3, 8), (7, 11)))
    assert summands(rows, (0, 0, 0)) == ((0, 1, 2),)
    assert summands(rows, (0, 1, 0)) == ((0,), (1,), (2,))
    own = adding(rows, tuple((-1, row) for row in rows))
    assert own == ((Range(0, 3),), (Range(4, 7),), (Range(8, 11),))
    assert sum(elements(intersection(row, box)) for row in rows for box in own) - 12 == 4  # each border twice
    unequal = tuple((Range(low, high),) for low, high in ((0, 6), (5, 8), (7, 11)))
    own = adding(unequal, tuple((-1, row) for row in unequal))
    assert own == ((Range(0, 5),), (Range(6, 7),), (Range(8, 11),)), "which equal parts would not be"
