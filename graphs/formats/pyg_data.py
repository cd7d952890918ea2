"""The `Data` of an op graph: in a batch of several, its indices are counted up as those of edges are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data


class OptionalIndex(Tensor):
    """Indices, of which -1 is none: to add to them, and to subtract from them, leaves it.

    PyTorch Geometric batches by adding what `__inc__` returns to a whole tensor, and separates by subtracting it.
    """

    def __add__(self, other: Any) -> OptionalIndex:
        """The sum, where there is an index."""
        plain = self.as_subclass(Tensor)
        added: OptionalIndex = torch.where(plain < 0, plain, plain + other).as_subclass(OptionalIndex)
        return added

    def __sub__(self, other: Any) -> OptionalIndex:
        """The difference, where there is an index."""
        less: OptionalIndex = self + -other
        return less


class OpGraphData(Data):  # type: ignore[misc] # it has no types
    """What `to_pyg` gives: `mirror` counts ops, `group` groups, and `weight_uses` ops and weights."""

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        """By how much the indices of the next graph in a batch are larger."""
        if key == "mirror":
            return self.num_nodes
        if key == "group":
            return int(value.max()) + 1 if len(value) else 0
        if key == "weight_uses":
            return torch.tensor([[self.num_nodes, len(self["weights"])]])
        return super().__inc__(key, value, *args, **kwargs)
