"""Index notation: ranges, boxes, and the strategies that follow from them (Tofu, sections 4.1 and 4.2)."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from graphs.foundation.errors import InputError
from graphs.notation.affine import Affine, variable
from graphs.notation.gradients import gradient
from graphs.notation.operator import Access, Operator, Statistic, tensor
from graphs.notation.ranges import EMPTY, Range, contains, cut, elements, hull, intersection, shape_of, whole
from graphs.notation.strategies import How, strategy
from graphs.operators import described
from tests.graphs.notation.calls import aten_call
from tests.graphs.notation.descriptions import convolution, fully_connected, pooling
from tests.graphs.notation.in_parts import made, needed, strategies
from tests.oracle.sharded.boxed import slices

Array = NDArray[np.float64]

small = st.integers(-4, 4)
ranges = st.builds(lambda low, size: Range(low, low + size - 1), st.integers(-3, 3), st.integers(0, 4))
boxes = st.tuples(ranges, ranges)


def points(box: tuple[Range, ...]) -> set[tuple[int, ...]]:
    return set(product(*(range(each.low, each.high + 1) for each in box)))


# ---- boxes -----------------------------------------------------------------------------------------------


@given(boxes, boxes)
def test_boxes_are_sets_of_points(a: tuple[Range, Range], b: tuple[Range, Range]) -> None:
    assert elements(a) == len(points(a))
    assert points(intersection(a, b)) == points(a) & points(b)
    assert contains(a, b) == (points(b) <= points(a))
    assert points(hull([a, b])) >= points(a) | points(b)
    assert (
        not points(a)
        or not points(b)
        or all({p[i] for p in points(hull([a, b]))} >= {min(p[i] for p in points(a) | points(b))} for i in (0, 1))
    )


@given(st.integers(0, 40), st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any))
def test_a_cut_covers_everything_once_in_proportion(size: int, shares: list[int]) -> None:
    parts = cut(size, shares)
    assert [i for part in parts for i in range(part.low, part.high + 1)] == list(range(size))
    for part, share in zip(parts, shares, strict=True):
        assert abs(part.size - size * share / sum(shares)) <= 1


def test_equal_parts_differ_by_one_at_most() -> None:
    assert [part.size for part in cut(10, 4)] == [3, 2, 3, 2]
    assert cut(8, 2) == (Range(0, 3), Range(4, 7))
    assert cut(5, (0.75, 0.25)) == (Range(0, 3), Range(4, 4))
    with pytest.raises(InputError, match="cannot divide 5"):
        cut(5, [0, 0])


def test_a_box_cuts_a_part_out_of_a_part() -> None:
    x = np.arange(24).reshape(4, 6)
    held, wanted = (Range(1, 3), Range(2, 5)), (Range(2, 3), Range(3, 3))
    assert (x[slices(held)][slices(wanted, held)] == x[slices(wanted)]).all()
    assert shape_of(wanted) == (2, 1)
    assert elements(whole(())) == 1
    assert elements((EMPTY, Range(0, 3))) == 0


# ---- affine expressions ----------------------------------------------------------------------------------


@given(st.tuples(small, small, small), st.tuples(ranges, ranges))
def test_the_range_of_an_expression_is_reached(numbers: tuple[int, int, int], space: tuple[Range, Range]) -> None:
    a, b, c = numbers
    expression = a * variable("i") + variable("j") * b - c
    values = [a * i + b * j - c for i, j in points(space)]
    found = expression.range(dict(zip("ij", space, strict=True)))
    depends = [each for each, factor in zip(space, (a, b), strict=True) if factor]
    if all(each.size for each in depends):
        inside = values or [-c]
        assert found == Range(min(inside), max(inside)) or not values
    else:
        assert found.size == 0


def test_expressions_are_written_and_have_values() -> None:
    index = 2 * variable("h") + variable("kh") - 1
    assert str(index) == "2 h + kh - 1"
    assert str(Affine()) == "0"
    assert index.at({"h": 3, "kh": 2}) == 7
    assert variable("h") - variable("h") == Affine()


# ---- strategies (T1) -------------------------------------------------------------------------------------


def written(operator: Operator) -> dict[str, str]:
    return {each.variable: str(each).partition(": ")[2] for each in strategies(operator)}


def test_a_product_has_three_strategies_in_each_direction() -> None:
    forward = fully_connected()
    assert written(forward) == {"b": "0 whole whole -> 0", "o": "whole 0 0 -> 1", "i": "1 1 whole -> sum"}
    # reads: gradient of y, y, x, w, bias
    assert written(gradient(forward, [0])) == {
        "b": "0 0 0 whole whole -> 0",
        "o": "1 1 whole 0 0 -> sum",
        "i": "whole whole 1 1 whole -> 1",
    }
    assert written(gradient(forward, [1, 2])) == {
        "b": "0 0 0 whole whole -> sum sum",
        "o": "1 1 whole 0 0 -> 0 0",
        "i": "whole whole 1 1 whole -> 1 whole",
    }


@pytest.mark.parametrize("window", [1, 3, 5])
def test_a_convolution_has_a_halo_one_less_than_its_window(window: int) -> None:
    halo = f" with a halo of {window - 1}" if window > 1 else ""
    assert written(convolution(window=window, padding=window // 2)) == {
        "n": "0 whole -> 0",
        "co": "whole 0 -> 1",
        "ci": "1 1 -> sum",
        "h": f"2{halo} whole -> 2",
        "w": f"3{halo} whole -> 3",
    }


def test_windows_side_by_side_have_no_halo() -> None:
    assert written(pooling()) == {"n": "0 -> 0", "c": "1 -> 1", "h": "2 -> 2", "w": "3 -> 3"}
    assert strategy(pooling(window=3), "h").reads[0].halo == 1
    assert strategy(convolution(window=1, stride=2, padding=0), "h").reads[0].halo == 0  # rows between are not read


def test_the_gradient_of_a_halo_remains_to_be_added() -> None:
    part = strategy(gradient(convolution(), [0]), "h").writes[0]
    assert (part.how, part.dimension, part.halo, part.reducer) == (How.SLICE, 2, 2, "sum")


def test_an_opaque_variable_is_not_divided() -> None:
    sort = Operator(
        {"n": 4, "d": 6}, (tensor((4, 6), "n", None),), (tensor((4, 6), "n", "d"),), opaque=frozenset({"d"})
    )
    assert written(sort) == {"n": "0 -> 0"}


def test_statistics_are_added_up_where_what_they_are_of_is_divided() -> None:
    rows = tensor((4, 6), "n", "d")
    softmax = Operator({"n": 4, "d": 6}, (rows,), (rows,), statistics=(Statistic(("n",), 2, 1),))
    assert [(each.variable, each.exchanged) for each in strategies(softmax)] == [("n", 0), ("d", 8)]
    assert [each.exchanged for each in strategies(gradient(softmax, [0]))] == [0, 4]


@pytest.mark.parametrize(
    ("call", "numbers"),
    [
        ("aten.native_layer_norm(x(4, 6, 8), [8], x(8), x(8), 1e-5)", 2),  # the sums of x and of its squares
        ("aten.rms_norm(x(4, 6, 8), [8], x(8), 1e-5)", 1),  # the sum of squares
    ],
)
def test_a_row_in_parts_adds_up_as_many_numbers_as_its_norm_subtracts_and_divides_by(call: str, numbers: int) -> None:
    norm = described(aten_call(call).signature)
    assert norm is not None
    for each in (norm, gradient(norm, [0])):
        assert {way.variable: way.exchanged for way in strategies(each)} == {"d0": 0, "d1": 0, "d2": 4 * 6 * numbers}


@pytest.mark.parametrize(
    ("access", "sentence"),
    [
        (tensor((4,), variable("i") + 1), r"\[i \+ 1\] leaves its tensor, of shape \(4,\)"),
        (tensor((4, 4), "i"), "has 1 dimensions"),
        (tensor((4,), "j"), "no size is given for the index variables j"),
    ],
)
def test_a_description_that_cannot_be_is_refused(access: Access, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Operator({"i": 4}, (access,), (tensor((4,), "i"),))


def test_the_gradient_of_a_maximum_over_what_may_be_divided_is_not_described() -> None:
    assert written(gradient(pooling(), [0]))["h"] == "2 2 2 -> 2"
    with pytest.raises(InputError, match="reduced by 'max'"):
        gradient(replace(pooling(), opaque=frozenset()), [0])


# ---- what a part reads is what it needs ------------------------------------------------------------------


@pytest.mark.parametrize("operator", [fully_connected(4, 3, 5), convolution(6, 3, 2, 1), pooling(6)])
def test_a_box_is_exactly_what_a_part_touches(operator: Operator) -> None:
    for chosen in strategies(operator):
        for side in cut(operator.sizes[chosen.variable], 2):
            space = operator.part(**{chosen.variable: side})
            boxes = needed(operator, {chosen.variable: side}) + made(operator, {chosen.variable: side})
            accesses = operator.reads + operator.writes
            for access, box in zip(accesses, boxes, strict=True):
                assert box == touched(access, space)


def touched(access: Access, space: dict[str, Range]) -> tuple[Range, ...]:
    """The hull of all elements that an access touches, point by point."""
    names = sorted(access.variables)
    found = []
    for values in product(*(range(space[name].low, space[name].high + 1) for name in names)):
        at = dict(zip(names, values, strict=True))
        point = tuple(each.at(at) for each in access.index if each is not None)
        if all(0 <= i < size for i, size in zip(point, access.shape, strict=True)):
            found.append(point)
    return tuple(Range(min(p[i] for p in found), max(p[i] for p in found)) for i in range(len(access.shape)))


# ---- every strategy, run on slices in numpy (T2) ---------------------------------------------------------


def convolve(x: Array, weight: Array, stride: int, padding: list[tuple[int, int]]) -> Array:
    """A convolution of images (n, ci, h, w), window by window."""
    x = np.pad(x, [(0, 0), (0, 0), *padding])
    rows, columns = weight.shape[2:]
    height, width = ((size - k) // stride + 1 for size, k in zip(x.shape[2:], (rows, columns), strict=True))
    out = np.zeros((len(x), len(weight), height, width))
    for i, j in np.ndindex(*out.shape[2:]):
        window = x[:, :, i * stride : i * stride + rows, j * stride : j * stride + columns]
        out[:, :, i, j] = np.einsum("nckl,ockl->no", window, weight)
    return out


@pytest.mark.parametrize(("window", "stride", "padding"), [(3, 1, 1), (2, 2, 0), (3, 2, 1)])
@pytest.mark.parametrize("parts", [2, 3])
def test_the_parts_of_a_convolution_make_the_whole(window: int, stride: int, padding: int, parts: int) -> None:
    operator, draw = convolution(8, window, stride, padding), np.random.default_rng(0)
    x, weight = (draw.normal(size=access.shape) for access in operator.reads)
    expected = convolve(x, weight, stride, [(padding, padding)] * 2)
    for chosen in strategies(operator):
        total = np.zeros(operator.writes[0].shape)
        for side in cut(operator.sizes[chosen.variable], parts):
            if not side.size:
                continue
            space = operator.part(**{chosen.variable: side})
            reads, [box] = needed(operator, {chosen.variable: side}), made(operator, {chosen.variable: side})
            around = [
                (max(got.low - reach.low, 0), max(reach.high - got.high, 0))
                for got, reach in zip(reads[0], operator.reads[0].reach(space), strict=True)
            ]
            total[slices(box)] += convolve(x[slices(reads[0])], weight[slices(reads[1])], stride, around[2:])
        np.testing.assert_allclose(total, expected, err_msg=str(chosen))
