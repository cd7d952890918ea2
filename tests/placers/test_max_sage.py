"""The encoder's layer is SAGEConv of PyTorch Geometric with the maximum: same weights, same bits, same gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.nn import SAGEConv

from placers.learned.sequential.encoder import MaxSage
from tests.drawn import examples


def theirs(width: int, own: bool) -> torch.nn.Module:
    layer: torch.nn.Module = SAGEConv((width, width), width, aggr="max", root_weight=own)
    return layer


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("width", [1, 3, 16, 64, 96, 257])
def test_a_seed_gives_the_same_weights_by_the_same_names(width: int, own: bool) -> None:
    torch.manual_seed(width)
    expected, drawn_next = theirs(width, own).state_dict(), torch.rand(3)
    torch.manual_seed(width)
    found = MaxSage(width, own=own).state_dict()
    assert list(found) == list(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert torch.equal(torch.rand(3), drawn_next)


@settings(max_examples=examples(60, 9), deadline=None)
@given(st.integers(1, 12), st.integers(0, 40), st.sampled_from([4, 8, 96]), st.booleans(), st.integers(0, 10_000))
def test_outputs_and_gradients_are_the_same_bits(nodes: int, edges: int, width: int, own: bool, seed: int) -> None:
    torch.manual_seed(seed)
    ours, reference = MaxSage(width, own=own), theirs(width, own)
    reference.load_state_dict(ours.state_dict())
    joined = torch.randint(nodes, (2, edges))  # some edges are the same, and some nodes have none
    # whole numbers: some neighbours say the same, so that several share a maximum's gradient
    said, known = (torch.randint(-2, 3, (nodes, width)).float() for _ in range(2))
    inputs = [each.clone().requires_grad_() for each in (said, known)]
    copies = [each.clone().requires_grad_() for each in (said, known)]
    found, expected = ours(*inputs, joined), reference(tuple(copies), joined)
    assert torch.equal(found, expected)
    weights = torch.randn_like(found)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    pairs = [*zip(inputs, copies, strict=True), *zip(ours.parameters(), reference.parameters(), strict=True)]
    for one, other in pairs:
        if one.grad is None or other.grad is None:
            assert one.grad is other.grad
        else:
            assert torch.equal(one.grad, other.grad)
