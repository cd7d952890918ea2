"""Options of split graphs: how many there are for all axes at once is known without writing them out."""

import itertools

import pytest

from placers.splits.options import SplitRules, Splitting
from placers.splits.split_graph import NONE
from tests.placers.splits.networks import mlp


@pytest.mark.parametrize("mesh", [(4,), (2, 2, 2), (2, 3, 2)])
@pytest.mark.parametrize("batch_axes", [0, 1])
def test_all_options_of_all_axes(mesh: tuple[int, ...], batch_axes: int) -> None:
    splitting = Splitting(mlp(3, 6, 4), mesh, SplitRules(), batch_axes)
    joint = splitting.joint()
    assert splitting.joint_sizes() == list(map(len, joint))
    for members, found in zip(splitting.variables, joint, strict=True):
        names = (*members[0].operator.sizes, NONE)
        possible = {
            option
            for option in itertools.product(names, repeat=len(mesh))
            if all(name in splitting._names(members, option[:axis], axis) for axis, name in enumerate(option))
        }
        assert len(found) == len(set(found))
        assert set(found) == possible
