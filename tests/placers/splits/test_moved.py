"""What passes between parts: as Tofu's table has it, as counted element by element, and as data parallelism moves."""

import itertools
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs.notation.affine import variable
from graphs.notation.operator import Operator, tensor
from graphs.notation.ranges import Range, cut, elements
from placers.splits.parts import Option, largest_share, moved, parts
from placers.splits.split_graph import layout_operator
from tests.drawn import examples
from tests.placers.splits.networks import convolution, gradient_of, pooling, product
from tests.placers.splits.tofu_table import PARTIAL, WHOLE, Scheme, recursion

MESHES = [(2,), (3,), (2, 2), (4,), (2, 3), (3, 2), (2, 2, 2)]
OPERATORS = [
    product(8, 12, 10), convolution(4, 6, 8, 12, 3, 1), convolution(4, 3, 5, 12, 3, 2), pooling(3, 4, 12, 2, 2),
    gradient_of(product(8, 12, 10), (0,)), gradient_of(convolution(4, 6, 8, 12, 3, 1), (1,)),
]  # fmt: skip


def options_of(operator: Operator, mesh: tuple[int, ...]) -> list[Option]:
    """All that leave each device a part."""
    names = [*(name for name in operator.sizes if name not in operator.opaque), ""]
    found = list[Option]()
    for option in itertools.product(names, repeat=len(mesh)):
        parts_of = {name: prod(n for n, by in zip(mesh, option, strict=True) if by == name) for name in option if name}
        found += [option] if all(operator.sizes[name] >= count for name, count in parts_of.items()) else []
    return found


def region_of(operator: Operator, option: Option, mesh: tuple[int, ...], device: int) -> dict[str, Range]:
    """The iteration space of a device, by `graphs.notation`."""
    space = dict(operator.space)
    for axis, place in enumerate(np.unravel_index(device, mesh)):
        if option[axis]:
            own = space[option[axis]]
            part = cut(own.size, mesh[axis])[int(place)]
            space[option[axis]] = Range(own.low + part.low, own.low + part.high)
    return space


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("mesh", [(2,), (3,), (2, 2), (2, 3)])
def test_boxes_are_those_of_index_notation(operator: Operator, mesh: tuple[int, ...]) -> None:
    options = options_of(operator, mesh)
    for made, accesses in ((False, operator.reads), (True, operator.writes)):
        for access in accesses:
            found = parts(operator, access, options, mesh, made)
            for row, option in enumerate(options):
                for device in range(prod(mesh)):
                    box = access.region(region_of(operator, option, mesh, device))
                    assert [tuple(r) for r in box] == list(
                        zip(found.low[-1][row, device].tolist(), found.high[-1][row, device].tolist(), strict=True)
                    )
                    assert found.elements[-1][row, device] == elements(box)


def test_a_device_that_has_no_part_makes_no_elements() -> None:
    """Two rows of five columns on three devices: one device has no row."""
    operator = product(2, 6, 5)
    found = parts(operator, operator.writes[0], [("n",)], (3,), True)
    assert sorted(found.elements[-1][0].tolist()) == [0, 5, 5]


SCHEMES = st.sampled_from([PARTIAL, WHOLE, 0, 1])


def as_option(schemes: list[Scheme], names: tuple[str, str]) -> Option:
    return tuple(names[s] if isinstance(s, int) else "k" if s == PARTIAL else "" for s in schemes)


@settings(max_examples=examples(120, 15), deadline=None)
@given(st.lists(st.tuples(SCHEMES, SCHEMES.filter(lambda s: s != PARTIAL)), min_size=1, max_size=3))
def test_cuts_in_two_cost_what_tofus_table_and_recursion_say_and_no_less_can_pass(
    schemes: list[tuple[Scheme, Scheme]],
) -> None:
    mesh, shape = (2,) * len(schemes), (16, 24)
    made, needed = [list(each) for each in zip(*schemes, strict=True)]
    maker, layout = product(16, 8, 24), layout_operator(shape)
    source = parts(maker, maker.writes[0], [as_option(made, ("n", "m"))], mesh, True)
    target = parts(layout, layout.writes[0], [as_option(needed, ("d0", "d1"))], mesh, True)
    found = moved(source, target)[0, 0]
    if len(made) == 1 or PARTIAL not in made:
        assert found.tolist() == [float(cost) for cost in recursion(shape, made, needed)]
    assert found.sum() == least_transfers(shape, made, needed)


def least_transfers(shape: tuple[int, int], made: list[Scheme], needed: list[Scheme]) -> int:
    """Counted element by element: to add up its partial sums at one device, best at one that needs it, and to send it.

    Copies of partial sums do so by themselves. Tofu's recursion is not that where there are partial sums and several
    cuts: it does not see where a sum had best be.
    """
    places = list(itertools.product((0, 1), repeat=len(made)))

    def has(schemes: list[Scheme], place: tuple[int, ...], element: tuple[int, int]) -> bool:
        bounds = [[0, size] for size in shape]
        for scheme, side in zip(schemes, place, strict=True):
            if isinstance(scheme, int):
                bounds[scheme][1 - side] = sum(bounds[scheme]) // 2
        return all(low <= i < high for i, (low, high) in zip(element, bounds, strict=True))

    total, sums = 0, 2 ** made.count(PARTIAL)
    for element in itertools.product(range(0, shape[0], 2), range(0, shape[1], 3)):  # all of a block are alike
        holders = {place for place in places if has(made, place, element)}
        needers = {place for place in places if has(needed, place, element)}
        if sums == 1:
            total += len(needers - holders)
        else:
            copies = set(itertools.product(*([0, 1] if scheme == WHOLE else [0] for scheme in made)))
            for copy in copies:
                own = {p for p in needers if all(s != WHOLE or a == b for s, a, b in zip(made, p, copy, strict=True))}
                total += sums - 1 + len(own) - bool(own & holders)
    return 6 * total


@settings(max_examples=examples(100, 15), deadline=None)
@given(st.sampled_from(MESHES), st.data())
def test_what_passes_is_what_devices_lack_of_what_they_need(mesh: tuple[int, ...], data: st.DataObject) -> None:
    """Counted element by element, for slices of unequal sizes, halos, and copies."""
    operator = data.draw(st.sampled_from(OPERATORS[:4]))
    access = operator.reads[0]
    layout = layout_operator(access.shape)
    held, needed = (data.draw(st.sampled_from(options_of(of, mesh))) for of in (layout, operator))
    source = parts(layout, layout.writes[0], [held], mesh, True)
    target = parts(operator, access, [needed], mesh, False)
    lacking = 0
    for device in range(prod(mesh)):
        has, needs = np.zeros(access.shape, np.bool_), np.zeros(access.shape, np.bool_)
        for of, option, mask, own in ((layout, held, has, layout.writes[0]), (operator, needed, needs, access)):
            box = own.region(region_of(of, option, mesh, device))
            mask[tuple(slice(r.low, r.high + 1) for r in box)] = True
        lacking += int((needs & ~has).sum())
    assert moved(source, target)[0, 0].sum() == lacking


@pytest.mark.parametrize("mesh", MESHES)
def test_dividing_the_batch_moves_what_an_all_reduce_of_the_weights_does(mesh: tuple[int, ...]) -> None:
    """Twice (n - 1) times the weight, if it is held whole on each device."""
    operator, devices = gradient_of(product(24, 12, 10), (1,)), prod(mesh)
    layout = layout_operator((10, 12))
    gradient = parts(operator, operator.writes[0], [("n",) * len(mesh)], mesh, True)
    weight = parts(layout, layout.writes[0], [("",) * len(mesh)], mesh, True)
    assert moved(gradient, weight).sum() == 2 * (devices - 1) * 120


def test_what_nobody_makes_does_not_pass() -> None:
    """The gradient of a part of a tensor has nothing outside of it."""
    whole, layout = tensor((8, 4), variable("i") + 4, "j"), layout_operator((8, 4))
    operator = Operator({"i": 4, "j": 4}, (), (whole,))
    source = parts(operator, whole, [("",), ("i",), ("j",)], (2,), True)
    target = parts(layout, layout.writes[0], [("",), ("d0",), ("d1",)], (2,), True)
    assert moved(source, target)[:, :, 0].tolist() == [[0, 0, 0], [16, 8, 8], [16, 8, 0]]


def test_the_busiest_device_computes_the_largest_part() -> None:
    operator = product(8, 12, 10)
    options: list[Option] = [("n", "n"), ("m", "m"), ("n", "k"), ("", ""), ("m", "")]
    assert largest_share(operator, options, (2, 2)) == pytest.approx([1 / 4, 3 / 10, 1 / 4, 1, 1 / 2])


def test_a_diagonal_is_needed_as_a_whole() -> None:
    access = tensor((4, 4), "i", "i")
    operator = Operator({"i": 4}, (access,), (tensor((4,), "i"),))
    found = parts(operator, access, [("i",)], (2,), False)
    assert found.elements[-1].tolist() == [[4.0, 4.0]]  # a box of two by two each: the diagonal has no smaller one
    assert found.is_whole.tolist() == [[True]]
