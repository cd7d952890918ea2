"""Mixed precision: what `--precision` asks for beyond the types of a model's tensors, as transforms of its graph.

    word         weights  gradients  master copy  moments of Adam  bytes    as in
    fp32         4        4                       4 + 4            16       plain PyTorch
    tf32         4        4                       4 + 4            16       torch.set_float32_matmul_precision("high")
    tf32-cudnn   4        4                       4 + 4            16       plain PyTorch on GPUs with TF32
    bf16-mixed   4        4                       4 + 4            16       torch.autocast; "bf16-mixed" of Lightning
    fp16-mixed   4        4                       4 + 4            16       torch.autocast with a GradScaler
    bf16         2        4          4            4 + 4            18       Megatron-LM --bf16: gradients summed in FP32
    fp16         2        2          4            4 + 4            16       ZeRO (Rajbhandari et al. 2020), DeepSpeed
    fp8          2        4          4            4 + 4            18       Transformer Engine: products with weights
    bf16-true    2        2                       2 + 2            8        model.to(torch.bfloat16)
    fp16-true    2        2                       2 + 2            8        model.to(torch.float16)

Bytes are those of one parameter. What scales a loss, and its check for overflow, is not in the graph.
"""

from dataclasses import dataclass, replace

import numpy as np

from graphs.foundation.errors import InputError, unknown
from graphs.op_graph import SPARSE, Floats, OpGraph, Phase
from graphs.op_graph.optimizers import UPDATE_TRAFFIC
from graphs.op_graph.precision import BYTES, SINGLE, precision_of
from graphs.op_graph.weight_memory import weight_gradient_bytes, weight_gradients

AS_IT_IS = "auto"  # what the model says
_KEPT = 3  # tensors of single precision that Adam with master copies reads and writes: the copy and two moments


@dataclass(frozen=True)
class Precision:
    """What a word asks for."""

    tensors: str = ""  # the type of floating-point tensors of the model and its inputs, by PyTorch's name; "": its own
    autocast: str = ""  # the type of an `autocast` block around the model
    products: str = SINGLE  # the precision of products, if not that of their operands; of FP8 of those with weights
    of: str = ""  # of which products alone: what their kinds begin with
    has_master: bool = False  # whether the optimizer keeps weights in single precision
    gradients: str = SINGLE  # that of gradients of weights; SINGLE: as the weights


PRECISIONS = {
    AS_IT_IS: Precision(),
    "fp32": Precision(tensors="float32"),
    "tf32": Precision(products="tf32"),
    "tf32-cudnn": Precision(
        products="tf32", of="aten.conv"
    ),  # torch.backends.cudnn.allow_tf32 is set, that of matmul not
    "bf16-mixed": Precision(autocast="bfloat16"),
    "fp16-mixed": Precision(autocast="float16"),
    "bf16": Precision(tensors="bfloat16", has_master=True, gradients="fp32"),
    "fp16": Precision(tensors="float16", has_master=True),
    "fp8": Precision(tensors="bfloat16", has_master=True, gradients="fp32", products="fp8"),
    "bf16-true": Precision(tensors="bfloat16"),
    "fp16-true": Precision(tensors="float16"),
}


def precision_named(word: str) -> Precision:
    """What a word asks for. Raises InputError for an unknown one."""
    if word not in PRECISIONS:
        raise InputError(unknown("precision", word, PRECISIONS))
    return PRECISIONS[word]


def check_precision(graph: OpGraph, word: str) -> None:
    """Raise InputError for a captured graph with products, none of which is in the precision that a word asks for."""
    asked = precision_named(word)
    expected = precision_of(asked.tensors or asked.autocast)
    if expected != SINGLE and graph.flops.any() and expected not in graph.precisions:
        raise InputError(
            f"{graph.name}: `precision={word!r}` leaves all of its products in other types: its code casts them "
            "itself, or could not be recorded; cast the model in its own code, and leave out `precision`"
        )


def in_precision(graph: OpGraph, word: str) -> OpGraph:
    """The graph of a model whose tensors have their types already, with its products, gradients and updates.

    Raises InputError for an unknown word.
    """
    asked = precision_named(word)
    if word != AS_IT_IS:
        graph = replace(graph, captured_in=word)
    if asked.products != SINGLE:
        own = graph.precisions or (SINGLE,) * len(graph)
        changes = graph.flops > 0
        if asked.products == "fp8":
            changes &= graph.weight_bytes[np.where(graph.mirror >= 0, graph.mirror, np.arange(len(graph)))] > 0
        else:  # the way of computing products of tensors in single precision
            changes &= np.array([each == SINGLE for each in own])
        if asked.of:
            changes &= np.array([kind.startswith(asked.of) for kind in graph.kinds])
        if changes.any():
            given = zip(own, changes.tolist(), strict=True)
            graph = replace(graph, precisions=tuple(asked.products if other else each for each, other in given))
    if not (asked.has_master and graph.is_training and graph.weight_precisions):
        return graph
    element = np.array([BYTES[each] for each in graph.weight_precisions])
    graph = replace(graph, gradient_precision=asked.gradients, master_weights=True)
    wider = _of_ops(graph, weight_gradient_bytes(graph))
    summed = weight_gradients(graph) & ~np.array([each.endswith(SPARSE) for each in _forward_kinds(graph)])
    output = np.where(summed, graph.output_bytes * wider, graph.output_bytes)
    # Adam reads the gradient and what is kept, and writes that and the weight.
    gradient = weight_gradient_bytes(graph) * element / np.maximum(graph.weights, 1.0)
    single = BYTES["fp32"]
    moved = np.where(element < single, gradient + 2 * _KEPT * single + element, UPDATE_TRAFFIC * element)
    traffic = _of_ops(graph, graph.trained_weights * moved / (UPDATE_TRAFFIC * element))
    accessed = np.where(graph.phase == Phase.UPDATE, graph.bytes_accessed * traffic, graph.bytes_accessed)
    return replace(graph, output_bytes=output, bytes_accessed=accessed + (output - graph.output_bytes))


def _forward_kinds(graph: OpGraph) -> list[str]:
    return [graph.kinds[tied if tied >= 0 else op] for op, tied in enumerate(graph.mirror.tolist())]


def _of_ops(graph: OpGraph, amount: Floats) -> Floats:
    """(ops,) an amount, (weights,) bytes, of the weights that each op, or its forward op, reads, over their bytes."""
    op, weight = graph.weight_uses.T
    trained = np.bincount(op, graph.trained_weights[weight], minlength=len(graph))
    given = np.bincount(op, amount[weight], minlength=len(graph))
    forward = np.where(graph.mirror >= 0, graph.mirror, np.arange(len(graph)))
    return np.divide(given, trained, out=np.ones(len(graph)), where=trained > 0)[forward]
