"""Our backward rules against PyTorch's joint graph: which gradients, at what cost, from what that was saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from graphs.capture.training_step import training_step
from graphs.foundation import by_name
from tests.graphs.joint_graph import Backward, JointGraph, joint_graph, ours, theirs

aten = torch.ops.aten

# What autograd keeps of an op's results and no op of the graph reads, so that our graph does not have it.
SEEN_BY_AUTOGRAD_ALONE = {
    "aten.max": "where each maximum was",
    "aten.max_pool2d_with_indices": "where each maximum was",
    "aten.median": "where each median was",
    "aten.min": "where each minimum was",
    "aten._native_batch_norm_legit_functional": "the statistics of the batch, two numbers per channel",
    "aten.native_dropout": "the mask",
    "aten.native_group_norm": "the statistics of each group, two numbers",
    "aten.native_layer_norm": "the statistics of each token, two numbers",
    "aten.nll_loss_forward": "the total weight of the targets, one number",
    "aten.nll_loss2d_forward": "the total weight of the targets, one number",
    "aten.sort": "where each element was",
    "aten.topk": "where each element was",
}

SPECS = {
    "amoebanet": "layers=3,filters=32,image=64,batch=2",
    "bert": "layers=2,width=16,heads=2,sequence=8,batch=2",
    "cifar10": "cell=0,layers=3,width=4,batch=2",
    "gnmt": "layers=3,steps=2,hidden=8,batch=2,vocabulary=11",
    "inception": "blocks=4,width=2,image=32,batch=2",
    "inception_v3": "image=139,batch=2",
    "layered": "depth=3,breadth=2,batch=4",
    "llama": "layers=2,width=16,heads=2,inner=24,sequence=8,batch=2",
    "nasnet": "repeat=1,filters=24,image=32,batch=2",
    "nmt": "steps=2,hidden=8,batch=2,vocabulary=11",
    "ptb": "cell=1,steps=2,hidden=8,batch=2,vocabulary=11",
    "resnet": "layers=26,groups=4,squeeze=4,image=32,batch=2",
    "rnnlm": "layers=2,steps=2,hidden=4,batch=2,vocabulary=11",
    "transformer": "layers=2,width=8,heads=2,sequence=5,batch=2,vocabulary=11,tied=true",
    "transformer_xl": "layers=2,width=16,heads=2,sequence=5,batch=2,vocabulary=11",
    "vgg": "layers=11,image=32,batch=2",
    "vit": "layers=2,width=16,heads=2,image=32,batch=2",
    "wavenet": "stacks=1,layers=3,channels=4,length=40,batch=2",
    "xlnet": "layers=2,width=16,heads=2,sequence=8,batch=2",
}


LARGE = {"inception_v3", "nasnet"}  # whose operations others have too


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(each, marks=pytest.mark.slow if each in LARGE else ())
        for each in by_name.built_in("graphs.families")
    ],
)
def joint(request: pytest.FixtureRequest) -> JointGraph:
    """Each family's in turn."""
    spec = f"{request.param}:{SPECS[request.param]}"
    module, args = by_name.build("graphs.families", spec)
    return joint_graph(module, args, name=spec)


def test_gradients_are_sent_to_the_same_ops_and_weights(joint: JointGraph) -> None:
    assert ours(joint).towards == theirs(joint).towards


def test_flops_are_equal_op_by_op(joint: JointGraph) -> None:
    assert ours(joint).flops == theirs(joint).flops


def test_the_same_outputs_are_saved(joint: JointGraph) -> None:
    assert ours(joint).saved == theirs(joint).saved


def test_what_autograd_alone_sees_is_known(joint: JointGraph) -> None:
    assert {joint.graph.kinds[op] for op in joint.hidden} <= SEEN_BY_AUTOGRAD_ALONE.keys()


def test_gradients_of_weights_are_as_large_as_the_weights(joint: JointGraph) -> None:
    graph = joint.graph
    step = training_step(graph)
    size = dict(zip(step.names, step.output_bytes.tolist(), strict=True))
    sent = {
        f"{graph.names[op]}.grad_weight": sum(joint.gradient_bytes[-1 - to] for to in joint.towards[op] if to < 0)
        for op in joint.towards if any(to < 0 for to in joint.towards[op]) and op >= 0
    }  # fmt: skip
    assert {name: size[name] for name in size if name.endswith(".grad_weight")} == sent
    assert joint.gradient_bytes == graph.weights.tolist()


def test_the_gradient_of_a_table_is_dense() -> None:
    with torch.device("meta"):
        joint = joint_graph(nn.Embedding(50, 6), (torch.empty(4, dtype=torch.long),), name="table")
    step = training_step(joint.graph)
    assert step.bytes_accessed[step.names.index("embedding.grad_weight")] == joint.traffic[0] == 4 * 8 + 4 * (24 + 300)


@pytest.mark.parametrize("family", ["vgg", "transformer"])
def test_it_is_the_joint_graph_of_the_module_itself(family: str) -> None:
    module, args = by_name.build("graphs.families", f"{family}:{SPECS[family]}")
    weights, buffers = dict(module.named_parameters()), dict(module.named_buffers())

    def backward(weights: dict[str, Tensor], buffers: dict[str, Tensor], *args: Tensor) -> tuple[Tensor, ...]:
        weights = {name: weight.detach().requires_grad_() for name, weight in weights.items()}
        loss = torch.func.functional_call(module, {**weights, **buffers}, args)
        return torch.autograd.grad(loss.sum(), list(weights.values()))

    traced = [node.target for node in make_fx(backward)(weights, buffers, *args).graph.nodes]
    dispatched = joint_graph(module, args, name=family).targets
    assert computing(dispatched) == computing(traced)


def computing(targets: list[object]) -> Counter[str]:
    """How often each ATen operation occurs that is no view."""
    ops = [op for op in targets if isinstance(op, torch._ops.OpOverload)]
    return Counter(str(op) for op in ops if not op.is_view and op is not aten._unsafe_view.default)


# ---- one operation at a time -----------------------------------------------------------------------------

Operation = Callable[[Tensor, Tensor, Tensor], Tensor]

# Of x and y, both (6, 6), which need a gradient, and indices i of the same shape.
AGREE: dict[str, Operation] = {
    "abs": lambda x, y, i: x.abs(),
    "add": lambda x, y, i: x + y,
    "amax": lambda x, y, i: x.amax(-1),
    "amin": lambda x, y, i: x.amin(-1),
    "any": lambda x, y, i: (x > 0).any() * x,
    "argmax": lambda x, y, i: x.argmax(0) * x[0],
    "atan2": lambda x, y, i: torch.atan2(x, y),
    "avg_pool2d": lambda x, y, i: F.avg_pool2d(x[None], 2),
    "_adaptive_avg_pool2d": lambda x, y, i: F.adaptive_avg_pool2d(x[None], 2),
    "bitwise_and": lambda x, y, i: ((x > 0) & (y < 1)) * x,
    "bmm": lambda x, y, i: x[None] @ y[None],
    "cat": lambda x, y, i: torch.cat([x, y]),
    "_cdist_forward": lambda x, y, i: torch.cdist(x, y),
    "ceil": lambda x, y, i: x.ceil() * y,
    "clamp": lambda x, y, i: x.clamp(0, 1),
    "clone": lambda x, y, i: x.clone(),
    "constant_pad_nd": lambda x, y, i: F.pad(x, (1, 1)),
    "convolution": lambda x, y, i: F.conv_transpose1d(x[None], y[:, :2, None]),
    "cos": lambda x, y, i: x.cos(),
    "cosine similarity": lambda x, y, i: F.cosine_similarity(x, y),
    "cumprod": lambda x, y, i: x.cumprod(0),
    "cumsum": lambda x, y, i: x.cumsum(0),
    "div": lambda x, y, i: x / y,
    "division by a number": lambda x, y, i: x / 3,
    "elu": lambda x, y, i: F.elu(x),
    "embedding": lambda x, y, i: F.embedding(y.argmax(0), x),
    "erf": lambda x, y, i: x.erf(),
    "exp": lambda x, y, i: x.exp(),
    "expm1": lambda x, y, i: x.expm1(),
    "_fft_r2c": lambda x, y, i: torch.fft.rfft(x).abs(),
    "flip": lambda x, y, i: x.flip(0),
    "floor": lambda x, y, i: x.floor() * y,
    "full_like": lambda x, y, i: torch.zeros_like(x) * x,
    "gather": lambda x, y, i: x.gather(0, y.argmax(0, keepdim=True)),
    "gather by an input": lambda x, y, i: x.gather(0, i),
    "ge": lambda x, y, i: (x >= y) * x,
    "gelu": lambda x, y, i: F.gelu(x),
    "glu": lambda x, y, i: F.glu(x),
    "hardswish": lambda x, y, i: F.hardswish(x),
    "hardtanh": lambda x, y, i: F.relu6(x),
    "index": lambda x, y, i: x[y.argmax(0)],
    "index_put": lambda x, y, i: x.index_put((i[0],), y),
    "index_select": lambda x, y, i: x.index_select(0, y.argmax(0)),
    "isnan": lambda x, y, i: x.isnan() * x,
    "leaky_relu": lambda x, y, i: F.leaky_relu(x),
    "linalg_vector_norm": lambda x, y, i: x.norm(dim=-1),
    "log": lambda x, y, i: x.log(),
    "logcumsumexp": lambda x, y, i: x.logcumsumexp(0),
    "logsumexp": lambda x, y, i: x.logsumexp(-1),
    "_log_softmax": lambda x, y, i: x.log_softmax(-1),
    "masked fill": lambda x, y, i: x.masked_fill(y > 0, 0.0),
    "max": lambda x, y, i: x.max(-1).values,
    "maximum": lambda x, y, i: torch.maximum(x, y),
    "mean": lambda x, y, i: x.mean(),
    "median": lambda x, y, i: x.median(-1).values,
    "min": lambda x, y, i: x.min(-1).values,
    "mish": lambda x, y, i: F.mish(x),
    "mm": lambda x, y, i: x @ y,
    "mul": lambda x, y, i: x * y,
    "multiplication by a mask": lambda x, y, i: (x > 0) * y,
    "multiplication by a number": lambda x, y, i: x * 2,
    "native_dropout": lambda x, y, i: F.dropout(x),
    "native_group_norm": lambda x, y, i: F.group_norm(x[None], 3),
    "neg": lambda x, y, i: -x,
    "pow": lambda x, y, i: x**3,
    "prod": lambda x, y, i: x.prod(-1),
    "rand_like": lambda x, y, i: torch.rand_like(x) * x,
    "reciprocal": lambda x, y, i: x.reciprocal(),
    "relu": lambda x, y, i: x.relu(),
    "repeat": lambda x, y, i: x.repeat(2, 2),
    "roll": lambda x, y, i: x.roll(1, 0),
    "round": lambda x, y, i: x.round() * y,
    "rsqrt": lambda x, y, i: x.rsqrt(),
    "scaled_dot_product_attention": lambda x, y, i: F.scaled_dot_product_attention(
        x[None, None], y[None, None], (x + 1)[None, None]
    ),
    "scatter": lambda x, y, i: x.scatter(0, i, y),
    "scatter_add": lambda x, y, i: x.scatter_add(0, i, y),
    "select_scatter": lambda x, y, i: x.select_scatter(y[0], 0, 1),
    "sigmoid": lambda x, y, i: x.sigmoid(),
    "sign": lambda x, y, i: x.sign() * y,
    "silu": lambda x, y, i: F.silu(x),
    "slice": lambda x, y, i: x[:2],
    "slice_scatter": lambda x, y, i: x.slice_scatter(y[:2], 0, 0, 2),
    "_softmax": lambda x, y, i: x.softmax(-1),
    "softplus": lambda x, y, i: F.softplus(x),
    "sort": lambda x, y, i: x.sort().values,
    "sqrt": lambda x, y, i: x.sqrt(),
    "stack": lambda x, y, i: torch.stack([x, y]),
    "sub": lambda x, y, i: x - y,
    "sum": lambda x, y, i: x.sum(0),
    "tan": lambda x, y, i: x.tan(),
    "tanh": lambda x, y, i: x.tanh(),
    "_to_copy": lambda x, y, i: x.double(),
    "topk": lambda x, y, i: x.topk(2).values,
    "trunc": lambda x, y, i: x.trunc() * y,
    "upsample_bicubic2d": lambda x, y, i: F.interpolate(x[None, None], scale_factor=2.0, mode="bicubic"),
    "upsample_bilinear2d": lambda x, y, i: F.interpolate(x[None, None], scale_factor=2.0, mode="bilinear"),
    "upsample_nearest2d": lambda x, y, i: F.interpolate(x[None, None], scale_factor=2.0),
    "var": lambda x, y, i: x.var(),
    "where": lambda x, y, i: torch.where(y > 0, x, y),
    "where by an input": lambda x, y, i: torch.where(i > 0, x, 0.0),
    "x * x": lambda x, y, i: x * x,
    "x @ x": lambda x, y, i: x @ x,
    "mask / x": lambda x, y, i: (i * 2) / x,
}
# Where our graph does not say enough, or a rule is too coarse: what autograd does instead.
DIFFER: dict[str, tuple[Operation, str]] = {
    "x ** y": (lambda x, y, i: x**y, "the output is saved too; for a constant power, which is common, it is not"),
    "x % 2": (lambda x, y, i: x % 2, "nothing is saved; for a tensor on the right, that is"),
    "max of all": (lambda x, y, i: x.max(), "x and the output are saved; along a dimension, only the indices"),
}


class OneByOne(nn.Module):
    """Each of several operations on the outputs of the same two linear layers."""

    def __init__(self, operations: dict[str, Operation]) -> None:
        super().__init__()
        self.x, self.y = nn.Linear(5, 6), nn.Linear(5, 6)
        self.operations = operations

    def forward(self, source: Tensor, i: Tensor) -> list[Tensor]:
        """What each makes of them."""
        x, y = self.x(source), self.y(source)
        return [operation(x, y, i) for operation in self.operations.values()]


def compared(operations: dict[str, Operation]) -> tuple[JointGraph, Backward, Backward]:
    with torch.device("meta"):
        args = torch.empty(6, 5), torch.empty(6, 6, dtype=torch.long)
        module = OneByOne(operations)
    kernels: dict[object, Callable[..., Tensor]] = {aten.scaled_dot_product_attention.default: flash_attention}
    joint = joint_graph(module, args, name="test", kernels=kernels)
    return joint, ours(joint), theirs(joint)


def flash_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The kernel that graphics processors run; on the meta device PyTorch would take attention apart."""
    output: Tensor = aten._scaled_dot_product_flash_attention(query, key, value)[0]
    return output


def test_operations_one_by_one() -> None:
    joint, expected, found = compared(AGREE)
    assert expected.towards == found.towards
    assert expected.flops == found.flops
    assert expected.saved == found.saved
    assert {joint.graph.kinds[op] for op in joint.hidden} <= SEEN_BY_AUTOGRAD_ALONE.keys()


@pytest.mark.parametrize("name", DIFFER)
def test_what_differs_is_known(name: str) -> None:
    operation, reason = DIFFER[name]
    _, expected, found = compared({name: operation})
    assert expected != found, f"no longer: {reason}"
    assert expected.towards == found.towards
