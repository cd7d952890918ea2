"""Autocast for a device that the machine has not is captured as PyTorch casts on CUDA."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.capture import autocast
from graphs.capture.forward import capture
from graphs.op_graph import OpGraph

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
ROWS, WIDTH = 64, 32


class Mixed(nn.Module):
    def __init__(self, device: str, dtype: torch.dtype = torch.bfloat16, *, enabled: bool = True) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.block = device, dtype, enabled

    def forward(self, x: Tensor) -> Tensor:
        device, dtype, enabled = self.block
        with torch.autocast(device, dtype, enabled):
            made: Tensor = self.layers(self.layers(x))
        return made


class Outside(nn.Module):
    """Products before, within, in a block in the block, and after it; a softmax and a loss within."""

    def forward(self, x: Tensor, wanted: Tensor) -> tuple[Tensor, ...]:
        before = x @ x
        with torch.autocast("cuda"):
            within = x @ x
            with torch.autocast("cuda", enabled=False):
                not_cast = x @ x
            again = torch.einsum("ij,jk->ik", x, x)
            soft = within.softmax(-1)
            loss = F.cross_entropy(within, wanted)
            normed = F.layer_norm(within, (WIDTH,))
            added = within + x
        return before, within, not_cast, again, soft, loss, normed, added, x @ x


def of(module: nn.Module, device: str) -> OpGraph:
    return capture(module.to(device), [torch.zeros(ROWS, WIDTH, device=device)], name="test")


@pytest.mark.parametrize(("named", "device"), [("cuda", "meta"), ("cuda", "cpu"), ("xpu", "meta"), ("cpu", "meta")])
def test_layers_are_cast_as_for_tensors_on_the_device_that_is_named(named: str, device: str) -> None:
    expected, found = of(Mixed("cpu"), "cpu"), of(Mixed(named), device)  # the former by PyTorch itself
    assert found.kinds == expected.kinds
    assert sorted(found.bytes_accessed) == sorted(expected.bytes_accessed)  # PyTorch casts biases first
    assert sorted(found.weights) == sorted(expected.weights)


def test_without_a_block_or_in_one_that_is_not_enabled_nothing_is_cast() -> None:
    assert "aten._to_copy" not in of(Mixed("cuda", enabled=False), "meta").kinds
    assert not torch.is_autocast_enabled("cuda")


def test_the_precision_of_each_operation_is_that_on_cuda() -> None:
    """As was seen on an H100: of a cross-entropy, the logarithm stays in half precision, and the loss does not."""
    with torch.device("meta"):
        x, wanted = torch.zeros(WIDTH, WIDTH), torch.zeros(WIDTH, dtype=torch.long)
    graph = capture(Outside(), [x, wanted], name="test")
    assert graph.signatures is not None
    made = [each and each.dtype for each in map(graph.signatures.signature, range(len(graph)))]
    of_kind = [(kind, dtype) for kind, dtype in zip(graph.kinds, made, strict=True) if kind != "aten._to_copy"]
    single, half = "float32", "float16"
    assert of_kind == [
        ("aten.mm", single), ("aten.mm", half), ("aten.mm", single), ("aten.bmm", half), ("aten._softmax", single),
        ("aten._log_softmax", half), ("aten.nll_loss_forward", single), ("aten.native_layer_norm", single),
        ("aten.add", single), ("aten.mm", single),
    ]  # fmt: skip


@pytest.mark.skipif(not HEADER.is_file(), reason="this PyTorch comes without its headers")
@pytest.mark.parametrize(
    ("macro", "own"),
    [
        ("AT_FORALL_LOWER_PRECISION_FP", autocast.LOWER_PRECISION),
        ("AT_FORALL_FP32", autocast.SINGLE_PRECISION),
        ("AT_FORALL_FP32_SET_OPT_DTYPE", autocast.MAKES_SINGLE_PRECISION),
        ("AT_FORALL_PROMOTE", autocast.WIDEST),
    ],
)
def test_the_lists_are_those_of_pytorch(macro: str, own: set[str]) -> None:
    text = HEADER.read_text()
    body = re.search(rf"#define {macro}\(_\)((?:.*\\\n)*.*)", text)
    assert body is not None
    assert set(re.findall(r"_\((\w+)", body[1])) == own
