"""ModuleOutputs: what modules return, divided as the plan has the ops that read it.

    y = down(x)      partial sums of y, whose readers, a sum and a norm, are divided along the sequence:
                     a reduce-scatter, as with `SequenceParallel` of torch.distributed.tensor.parallel

DTensor goes on with what an operation leaves, and would add up partial sums on all devices. What is between modules it
divides by the rules of its operations; so it does an output whose readers do not agree, or want what it cannot say.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from torch import nn
from torch.distributed.tensor import DTensor

from envs.running.partitioned.tensor_placements import Placements, Shape, TensorPlacements
from graphs.descriptions.descriptions import descriptions_of
from graphs.foundation.errors import InputError
from graphs.notation.operator import Access
from graphs.op_graph import Phase


class ModuleOutputs:
    """The placements of outputs, by the names of modules."""

    def __init__(self, said: TensorPlacements) -> None:
        graph = said.problem.graph
        self._said, self._readers = said, defaultdict[str, list[tuple[int, Access]]](list)
        of = [name.rpartition("/")[0] for name in graph.names]
        last = {of[op]: op for op in range(len(graph)) if graph.phase[op] == Phase.FORWARD}
        for op, each in enumerate(descriptions_of(graph)):
            if each is None or graph.phase[op] != Phase.FORWARD or graph.kinds[op] == "loss":
                continue  # each device goes on with its part of a loss
            for source, access in zip(each.sources, each.operator.reads, strict=True):
                if (
                    source is not None
                    and source.op >= 0
                    and last[of[source.op]] == source.op
                    and of[source.op] != of[op]
                ):
                    self._readers[of[source.op]].append((op, access))

    @contextmanager
    def redistributed(self, model: nn.Module) -> Iterator[None]:
        """While this lasts, the modules of a model return what is divided so."""
        with ExitStack() as hooks:
            for name, module in model.named_modules():
                if name and name in self._readers:
                    hooks.callback(module.register_forward_hook(partial(self._placed, name)).remove)
            yield

    def _placed(self, name: str, _module: nn.Module, _given: object, made: object) -> DTensor | None:
        if not isinstance(made, DTensor):
            return None
        wanted = self._of(name, tuple(made.shape))
        return None if wanted is None or wanted == made.placements else made.redistribute(placements=wanted)

    def _of(self, name: str, shape: Shape) -> Placements | None:
        """The placements of a tensor of that shape; None where readers want others, or what DTensor cannot say."""
        try:
            found = {
                self._said.of_access(op, access, shape, f"the output of {name}") for op, access in self._readers[name]
            }
        except InputError:
            return None
        return found.pop() if len(found) == 1 else None
