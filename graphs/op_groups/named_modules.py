"""A model as a graph names it: the modules whose calls its ops come from, and its parameters, without any code.

What else a model has, such as modules that compute nothing, is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphs.op_graph import OpGraph

# Imported for its types alone: torch takes seconds to import.
if TYPE_CHECKING:
    from torch import nn


def named_modules(graph: OpGraph) -> nn.Module:
    """The modules, empty, in the order of the graph; parameters are there by name alone, and have no elements."""
    import torch  # seconds to import, as the next
    from torch import nn

    root = nn.Module()
    for path in dict.fromkeys(call.module for call in graph.calls if call is not None):
        _below(root, path)
    for name in graph.weight_names:
        path, _, last = name.rpartition(".")
        if last and (holder := _below(root, path)) is not None:
            holder._parameters[last] = nn.Parameter(torch.empty(0, device="meta"))
    return root


def _below(root: nn.Module, path: str) -> nn.Module | None:
    """The module of a path, which is added if it is not there; None for what is no path."""
    module, parts = root, path.split(".") if path else []
    if not all(parts):
        return None
    for part in parts:  # into the dictionary itself: names of a file may be those of methods
        if part not in module._modules:
            module._modules[part] = type(root)()
        module = module._modules[part]  # type: ignore[assignment]
    return module
