"""Operands: what the gradient of each tensor that an op reads is computed from.

The gradient of a factor is made of the other factors, that of a summand of nothing but the gradient that arrives:

    addmm(bias, x, weight)     x: weight     weight: x     bias: nothing
    mul(h, h)                  h: h, twice

So the bias of a product costs no product, a product of a tensor with itself costs two, and what no gradient needs is
not kept for the backward pass. An op's signature says in which places it reads which tensor.
"""

from collections.abc import Iterable, Mapping

from graphs.capture.gradient_flow import detaches
from graphs.notation.signatures import read_positions
from graphs.op_graph import OpGraph

_Needs = Mapping[int, tuple[int, ...]]  # by the position of an argument those of what its gradient is made of
_OF_TWO: _Needs = {0: (1,), 1: (0,)}
_AND_ADDED: _Needs = {1: (2,), 2: (1,)}  # to the first argument
_NEEDS: Mapping[str, _Needs] = {
    "addbmm": _AND_ADDED, "addcdiv": {1: (2,), 2: (1, 2)}, "addcmul": _AND_ADDED, "addmm": _AND_ADDED,
    "addmv": _AND_ADDED, "addr": _AND_ADDED, "baddbmm": _AND_ADDED, "bmm": _OF_TWO, "convolution": _OF_TWO,
    "_native_batch_norm_legit_functional": {0: (0, 1), 1: (0,)},
    "div": {0: (1,), 1: (0, 1)}, "dot": _OF_TWO, "_grouped_mm": _OF_TWO, "index_add": {3: (2, 3)},
    "index_copy": {3: (2, 3)}, "lerp": {0: (2,), 1: (2,), 2: (0, 1)}, "linalg_cross": _OF_TWO, "linear": _OF_TWO,
    "mm": _OF_TWO, "mul": _OF_TWO, "mv": _OF_TWO, "vdot": _OF_TWO,
}  # fmt: skip


class Operands:
    """The places in which the ops of a graph read tensors."""

    def __init__(self, graph: OpGraph, kinds: list[str]) -> None:
        """`kinds` are the names of ATen operations, "mm"."""
        self._signatures, self._kinds, self._weights = graph.signatures, kinds, len(graph.weights)

    def known(self, op: int) -> bool:
        """Whether it is known what the gradients of an op's operands are made of."""
        has_signature = self._signatures is not None and self._signatures.signature(op) is not None
        return has_signature and self._kinds[op] in _NEEDS

    def factors(self, op: int, sources: Iterable[int]) -> list[int]:
        """The positions in which an op reads one of some sources, if the gradient there is made of other operands.

        Sources are numbered as `Signatures.sources` are: -1 - k is weight k.
        """
        wanted = set(sources)
        at, needs = self._at(op), _NEEDS[self._kinds[op]]
        return [
            position
            for position, (source, is_detached) in at.items()
            if source in wanted and position in needs and not is_detached
        ]

    def needed(self, op: int, sources: Iterable[int]) -> list[int]:
        """The sources that the gradients of an op's operands from some sources are made of."""
        at, needs = self._at(op), _NEEDS[self._kinds[op]]
        read = [at[other][0] for position in self.factors(op, sources) for other in needs[position] if other in at]
        return list(dict.fromkeys(read))

    def _at(self, op: int) -> dict[int, tuple[int, bool]]:
        """The source of each argument of an op that is a tensor, by its position, and whether it is read detached."""
        signature = None if self._signatures is None else self._signatures.signature(op)
        if self._signatures is None or signature is None:
            return {}
        sources, found = self._signatures.numbers(op), dict[int, tuple[int, bool]]()
        for position, argument in enumerate(signature.arguments):
            for number in read_positions(argument):
                views = signature.reads[number].views
                found[position] = sources[number], any(detaches(view.function) for view in views)
        return found
