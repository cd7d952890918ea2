"""In which place each weight of a model is kept; found again only when the model has other weights than before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from envs.placed_models.places import EVERYWHERE


class WeightHomes:
    """The places of a model's weights by what they are, not by name."""

    def __init__(self, model: nn.Module, by_name: Mapping[str, int]) -> None:
        """`by_name`: the place of each weight that the plan knows."""
        self._model, self._by_name = model, by_name
        self._of: dict[int, tuple[nn.Parameter, int | None]] = {}  # by the number of a parameter

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_of": {}}  # of a model that is copied or saved, these are not the weights

    def of(self, tensor: Tensor) -> int | None:
        """The place of a weight, EVERYWHERE if the plan does not know it; None for what is no weight of the model."""
        weight, home = self._of.get(id(tensor), (None, None))
        if weight is not tensor and isinstance(tensor, nn.Parameter):
            named = self._model.named_parameters()
            self._of = {id(each): (each, self._by_name.get(name, EVERYWHERE)) for name, each in named}
            weight, home = self._of.setdefault(id(tensor), (tensor, None))
        return home if weight is tensor else None
