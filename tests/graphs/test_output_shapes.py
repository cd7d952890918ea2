"""Shapes of outputs are worked out once, and those that are kept are what PyTorch would say again."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from graphs.capture.output_shapes import OutputShapes

aten = torch.ops.aten
X = torch.empty(4, 6, device="meta")


class Asked(TorchDispatchMode):
    """Notes which operations PyTorch is asked for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note it, and do it."""
        self.operations.append(func)
        return func(*args, **(kwargs or {}))


def twice(func: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any, int]:
    """What it returns both times, and how often PyTorch was asked."""
    shapes = OutputShapes()
    with Asked() as asked:
        first, second = shapes.run(func, args, kwargs), shapes.run(func, args, kwargs)
    return first, second, asked.operations.count(func)


def spec(value: Any) -> Any:
    return (value.shape, value.stride(), value.dtype, value.layout) if isinstance(value, Tensor) else value


@pytest.mark.parametrize(
    ("func", "args", "times"),
    [
        (aten.add.Tensor, (X, 1), 1),
        (aten.native_layer_norm.default, (X, [6], None, None, 1e-5), 1),  # several results
        (aten.native_layer_norm_backward.default, (X, X, [6], X[:, :1], X[:, :1], None, None, [True, False, False]), 1),
        (aten.transpose.int, (X, 0, 1), 2),  # a view, of what it is given
        (aten.add.Tensor, (torch.empty(4, 6), 1), 2),  # not on the meta device: it is computed
    ],
    ids=["one", "several", "some of several", "a view", "computed"],
)
def test_what_is_kept_is_what_pytorch_would_say_again(func: Any, args: tuple[Any, ...], times: int) -> None:
    first, second, asked = twice(func, *args)
    assert asked == times
    several = [[each] if isinstance(each, Tensor) else list(each) for each in (first, second)]
    assert [*map(spec, several[0])] == [*map(spec, several[1])]
    assert type(first) is type(second)


def test_what_has_no_strides_is_asked_for_each_time() -> None:
    what = {"dtype": torch.float32, "layout": torch.sparse_coo, "device": torch.device("meta")}
    first, second, asked = twice(aten.sparse_coo_tensor.size, [4, 6], **what)
    assert asked == 2
    assert first.layout == second.layout == torch.sparse_coo


def test_results_are_new_tensors_and_operands_that_differ_are_asked_for() -> None:
    first, second, _ = twice(aten.add.Tensor, X, 1)
    assert first is not second
    shapes = OutputShapes()
    assert shapes.run(aten.add.Tensor, (X, 1), {}).dtype == torch.float32
    assert shapes.run(aten.add.Tensor, (X.int(), 1), {}).dtype == torch.int32
    assert shapes.run(aten.add.Tensor, (X.int(), 1.0), {}).dtype == torch.float32, "1 and 1.0 are not alike"
