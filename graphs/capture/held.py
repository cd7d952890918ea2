"""Held: the inputs, buffers and constants of a module that becomes an op graph."""

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from graphs.capture.examples import Example
from graphs.capture.nested import tensors_in
from graphs.op_graph import OpGraph
from graphs.op_graph.held_tensors import HeldTensors


def held_by(example: Example) -> dict[Tensor, str]:
    """All tensors that a module holds or is given, with their names in it; "" of inputs."""
    found = dict.fromkeys(tensors_in((example.args, example.kwargs)), "")
    return found | {
        tensor: name
        for each in (example.module.named_buffers, example.module.named_parameters)
        for name, tensor in each()
    }


class HeldDraft:
    """What a graph's signatures call inputs, while it is read, and what no op reads but a module holds."""

    def __init__(self, graph: OpGraph, samples: int, existing: Mapping[Tensor, str]) -> None:
        self._graph, self._samples, self._existing = graph, samples, existing
        self._tensors: list[tuple[float, bool, str]] = []  # bytes, whether it grows with the batch, name

    def add(self, tensor: Tensor, size: float) -> None:
        """The next input, by its number in the signatures."""
        name = self._existing.get(tensor, "")
        grows = not name and tensor.dim() > 0 and len(tensor) == self._samples > 0
        self._tensors.append((size, grows, name))

    def built(self, read: Sequence[Tensor] | None) -> HeldTensors:
        """All of them. Of the tensors that exist, those that are not `read` are held with an op of the same module.

        None if it is not known which are read.
        """
        graph, signatures = self._graph, self._graph.signatures
        assert signatures is not None
        op = np.repeat(np.arange(len(graph)), np.diff(signatures.offsets))
        number = -1 - signatures.sources - len(graph.weights)
        uses = [np.column_stack([op, number])[number >= 0]]
        known = {id(tensor) for tensor in read or ()}
        for tensor, name in self._existing.items() if read is not None else ():
            if id(tensor) not in known:
                uses.append(np.array([[self._near(name), len(self._tensors)]]))
                self.add(tensor, float(tensor.numel() * tensor.element_size()))
        size, grows, names = zip(*self._tensors, strict=True) if self._tensors else ((), (), ())
        return HeldTensors(np.array(size, np.float64), np.concatenate(uses), np.array(grows, np.bool_), names)

    def _near(self, name: str) -> int:
        """The first op of the module that holds a tensor, or of the smallest module around it that has ops."""
        path = name.rpartition(".")[0]
        while path:
            for op, other in enumerate(self._graph.names):
                if other.startswith((f"{path}/", f"{path}.")):
                    return op
            path = path.rpartition(".")[0]
        return 0
