"""What PyTorch runs as one operation is one op, which costs what that reads and writes, and keeps what autograd keeps.

The right values are PyTorch's own: the operations that autograd dispatches, and the tensors that it saves, as modes and
hooks see them. That each of them is one kernel on a GPU was seen with a profiler on one (H100, torch 2.11), but for the
losses and `logsumexp`, whose several kernels autograd takes for one operation.
"""

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, UntypedStorage, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphs.capture.forward import capture
from graphs.capture.training_step import training_step

ROWS, IMAGES, STEPS, VOLUMES = (64, 256), (2, 16, 24, 24), (2, 16, 64), (2, 4, 8, 8, 8)
Shapes = tuple[tuple[int, ...], ...]

ACTIVATIONS: dict[str, nn.Module] = {
    type(module).__name__: module
    for module in (
        nn.CELU(), nn.ELU(), nn.GELU(), nn.GLU(), nn.Hardshrink(), nn.Hardsigmoid(), nn.Hardswish(), nn.Hardtanh(),
        nn.LeakyReLU(), nn.LogSigmoid(), nn.LogSoftmax(-1), nn.Mish(), nn.ReLU(), nn.ReLU6(), nn.SELU(),
        nn.Sigmoid(), nn.SiLU(), nn.Softmax(-1), nn.Softplus(), nn.Softshrink(), nn.Tanh(), nn.Threshold(0.1, 0.0),
    )
}  # fmt: skip
CALLS: dict[str, tuple[Callable[..., Any], Shapes]] = {
    **{name: (module, (ROWS,)) for name, module in ACTIVATIONS.items()},
    "gelu, tanh": (lambda x: F.gelu(x, approximate="tanh"), (ROWS,)),
    "prelu": (F.prelu, (ROWS, (256,))),
    "layer_norm": (lambda x: F.layer_norm(x, (256,)), (ROWS,)),
    "group_norm": (lambda x: F.group_norm(x, 4), (IMAGES,)),
    **{
        f"pad, {mode}, {len(shape) - 2}d": (
            lambda x, mode=mode: F.pad(x, (2,) * (2 * x.dim() - 4), mode),
            (shape,),
        )
        for mode in ("constant", "reflect", "replicate")
        for shape in (STEPS, IMAGES, VOLUMES)
    },
    **{
        f"upsample, {mode}": (lambda x, mode=mode: F.interpolate(x, scale_factor=2, mode=mode), (shape,))
        for mode, shape in {
            "nearest": IMAGES, "nearest-exact": IMAGES, "linear": STEPS, "bilinear": IMAGES, "bicubic": IMAGES,
            "trilinear": VOLUMES,
        }.items()
    },
    "upsample, nearest, 1d": (lambda x: F.interpolate(x, scale_factor=2), (STEPS,)),
    "upsample, nearest, 3d": (lambda x: F.interpolate(x, scale_factor=2), (VOLUMES,)),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), (IMAGES, (2, 12, 12, 2))),
    "affine_grid": (lambda t: F.affine_grid(t, [2, 3, 12, 12], align_corners=False), ((2, 2, 3),)),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (IMAGES,)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (IMAGES,)),
    "unfold": (lambda x: F.unfold(x, 3), (IMAGES,)),
    "fold": (lambda x: F.fold(x, (8, 8), 3, padding=1), ((2, 36, 64),)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), (IMAGES,)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, 5), (IMAGES,)),
    **{
        f"{loss.__name__}, {reduction}": (
            lambda x, y, loss=loss, reduction=reduction: loss(x, y.detach(), reduction=reduction),
            (ROWS, ROWS),
        )
        for loss in (F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.soft_margin_loss, F.binary_cross_entropy_with_logits)
        for reduction in ("none", "mean", "sum")
    },
    "binary_cross_entropy": (lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), (ROWS, ROWS)),
    "kl_div": (lambda x, y: F.kl_div(x, y, reduction="none"), (ROWS, ROWS)),
    "addcmul": (torch.addcmul, (ROWS,) * 3),
    "addcdiv": (torch.addcdiv, (ROWS,) * 3),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), (ROWS, ROWS)),
    "lerp, tensor": (torch.lerp, (ROWS,) * 3),
    "logaddexp": (torch.logaddexp, (ROWS, ROWS)),
    "xlogy": (torch.xlogy, (ROWS, ROWS)),
    "xlog1py": (torch.special.xlog1py, (ROWS, ROWS)),
    "baddbmm": (torch.baddbmm, ((4, 32, 16), (4, 32, 8), (4, 8, 16))),
    "mv": (torch.mv, ((32, 16), (16,))),
    "addr": (torch.addr, ((32, 16), (32,), (16,))),
    **{
        name: (function, (ROWS,))
        for name, function in {
            "rsub": lambda x: 1 - x, "frac": torch.frac, "sinc": torch.sinc, "logit": lambda x: torch.logit(x, 1e-6),
            "nan_to_num": torch.nan_to_num, "entr": torch.special.entr, "clamp_min": lambda x: x.clamp_min(0.0),
            "tril": torch.tril, "triu": torch.triu, "roll": lambda x: x.roll(3, 1), "std": lambda x: x.std(-1),
            "flip": lambda x: x.flip(0), "var": lambda x: x.var(-1), "norm": lambda x: x.norm(dim=-1),
            "nansum": torch.nansum, "logsumexp": lambda x: x.logsumexp(-1), "diag_embed": torch.diag_embed,
            "masked_fill": lambda x: x.masked_fill(x.detach() > 0, -1e9),
            "stack": lambda x: torch.stack([x, x + 1]), "square": torch.square, "renorm": lambda x: x.renorm(2, 0, 1.0),
        }.items()
    },
}  # fmt: skip
SAVED_FOR_ITSELF = {"LogSigmoid", "layer_norm", "group_norm"}  # what only autograd sees, of the first on CPUs alone
_MAKES_NO_KERNEL = ("empty", "new_empty", "empty_like", "detach")


class Scaled(nn.Module):
    """A function of tensors that depend on weights, as do those within a network."""

    def __init__(self, function: Callable[..., Any], inputs: int) -> None:
        super().__init__()
        self.function = function
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(inputs))

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*map(operator.mul, inputs, self.scales))


class Dispatched(TorchDispatchMode):
    """Notes the operations that PyTorch runs, without views, and how many bytes they read and write."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = list[int]()

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        is_view = any(each.alias_info is not None and not each.alias_info.is_write for each in func._schema.returns)
        if not is_view and func.overloadpacket.__name__ not in _MAKES_NO_KERNEL:
            read = {id(each): each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
            written = [each for each in tree_leaves(out) if isinstance(each, Tensor)]
            self.bytes.append(sum(each.numel() * each.element_size() for each in (*read.values(), *written)))
        return out


def example(name: str, device: str) -> tuple[nn.Module, list[Tensor]]:
    function, shapes = CALLS[name]
    with torch.device(device):
        module = function.to(device) if isinstance(function, nn.Module) else function
        return Scaled(module, len(shapes)), [torch.zeros(shape) for shape in shapes]


@pytest.mark.parametrize("name", CALLS)
def test_one_operation_is_one_op_that_costs_what_it_reads_and_writes(name: str) -> None:
    module, inputs = example(name, "meta")
    with Dispatched() as real:
        module(*inputs)
    graph = capture(module, inputs, name=name)
    assert graph.bytes_accessed[graph.bytes_accessed > 0].tolist() == real.bytes


@pytest.mark.parametrize("name", sorted(CALLS.keys() - SAVED_FOR_ITSELF))
def test_kept_for_the_backward_pass_is_what_autograd_saves(name: str) -> None:
    with FakeTensorMode():
        module, inputs = example(name, "cpu")
        saved = dict[int, UntypedStorage]()

        def keep(tensor: Tensor) -> Tensor:
            saved[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            module(*inputs)
        for tensor in (*module.parameters(), *inputs):
            saved.pop(tensor.untyped_storage()._cdata, None)
    graph = training_step(capture(*example(name, "meta"), name=name))
    first = graph.kinds.index("loss")
    kept = {producer for producer, consumer in graph.edges.tolist() if producer < first < consumer}
    assert sum(graph.output_bytes[op] for op in kept) == sum(each.nbytes() for each in saved.values())
