"""What a graph holds for the backward pass is, to the byte, what autograd saves of the same model."""

import pytest
import torch
from torch import Tensor, nn

from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.foundation import by_name
from graphs.op_graph import OpGraph, Phase

SMALL = "layers=2,width=32,heads=4,sequence=16,batch=2"


def saved_by_autograd(spec: str) -> int:
    """Bytes of the memory that autograd keeps for the backward pass, but for weights, buffers and inputs."""
    module, inputs = by_name.build("graphs.families", spec)
    module = module.to_empty(device="cpu")
    for tensor in (*module.parameters(), *module.buffers()):
        nn.init.normal_(tensor) if tensor.is_floating_point() else tensor.fill_(1)
    given = [torch.zeros(each.shape, dtype=each.dtype) for each in inputs]
    there = {each.untyped_storage().data_ptr() for each in (*module.parameters(), *module.buffers(), *given)}
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)  # so that no other tensor has its memory
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = module(*given)
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in kept}
    assert loss.requires_grad
    return sum(size for address, size in storages.items() if address not in there)


def held_by(graph: OpGraph) -> float:
    """Bytes of what forward ops make that backward ops read, with masks, statistics and the like."""
    producer, consumer = graph.edges[~graph.control].T
    held = set(producer[(graph.phase[producer] == Phase.FORWARD) & (graph.phase[consumer] == Phase.BACKWARD)].tolist())
    return sum(float(graph.output_bytes[op] + graph.unsent_bytes[op]) for op in held)


@pytest.mark.parametrize(
    "spec",
    [
        *(f"transformer:{SMALL},vocabulary=50,attention={way}" for way in ("scaled", "eager", "megatron", "sdpa")),
        f"transformer:{SMALL},vocabulary=50,tied=true,activation=gelu_new",
        f"bert:{SMALL}",
        f"llama:{SMALL},vocabulary=50",
    ],
)
def test_a_step_holds_what_autograd_saves(spec: str) -> None:
    graph = training_step(capture(*by_name.build("graphs.families", spec), name=spec))
    assert held_by(graph) == saved_by_autograd(spec) > 0


def test_weights_of_attention_that_are_dropped_are_held_twice_and_their_mask() -> None:
    """The softmax for its gradient, what is left for the product, and of each element whether it is, one byte.

    That is the mask of `aten.native_dropout`, whose kernel GPUs have. Without, the product reads the softmax itself.
    """

    def held(knobs: str) -> float:
        spec = f"transformer:{SMALL},vocabulary=50,attention=eager,dropout=0.1{knobs}"
        return held_by(training_step(capture(*by_name.build("graphs.families", spec), name=spec)))

    scores, layers = 2 * 4 * 16 * 16, 2
    assert held("") - held(",attention_dropout=false") == layers * (4 + 1) * scores
