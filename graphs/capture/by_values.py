"""By values: where sizes or control flow depend on data, a module is run for real on those of its example.

Then the tensors that stand in for the module's have data, and every operation is computed while it is written down.
What is captured is the step of these values: which rows go to which expert, how long each sequence is. A model on the
meta device, or its inputs, get random data, as `graphs.capture.random_data` draws it.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import flop_registry

from graphs.capture.random_data import drawn, fill
from graphs.capture.stand_ins import StandIns, unchanged

MOST_FLOPS = 1e13  # that are computed: some minutes of a CPU's cores
MOST_BYTES = 2**32  # of weights, buffers and inputs, which exist twice meanwhile


class TooLargeError(Exception):
    """A module that is too large to be run; the message says how large."""


class Copies(StandIns):
    """Tensors with data, each in place of a tensor of a module or of its inputs, which stay as they are."""

    def __init__(self, module: nn.Module, given: Iterable[Tensor]) -> None:
        """`given` are all tensors of the module and its inputs. Raises TooLargeError for more than `MOST_BYTES`."""
        held = list({id(tensor): tensor for tensor in given}.values())
        size = sum(tensor.numel() * tensor.element_size() for tensor in held)
        if size > MOST_BYTES:
            raise TooLargeError(f"its weights and inputs are {size / 2**30:.1f} GiB, more than {MOST_BYTES >> 30}")
        super().__init__(next((tensor.device for tensor in held if not tensor.is_meta), torch.device("cpu")))
        self.data = "random data" if any(tensor.is_meta for tensor in held) else "the example"
        self._flops = 0.0
        self._filled = self._with_data(module)

    def mode(self) -> AbstractContextManager[object]:
        """No mode: operations are computed."""
        return nullcontext()

    def computed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Count what an operation has computed. Raises TooLargeError beyond `MOST_FLOPS`."""
        count = flop_registry.get(getattr(func, "overloadpacket", None))
        if count is not None:
            self._flops += float(count(*args, **kwargs, out_val=out))
        if self._flops > MOST_FLOPS:
            raise TooLargeError(f"it computes more than {MOST_FLOPS / 1e12:.0f} TFLOP")

    def _with_data(self, module: nn.Module) -> dict[int, Tensor]:
        """Weights and buffers with random data, by the id of the one that has none."""
        before = _held(module)
        with unchanged(module):
            fill(module, str(self.home))
            return {id(before[path]): tensor for path, tensor in _held(module).items() if before[path].is_meta}

    def _like(self, tensor: Tensor) -> Tensor:
        if tensor.is_meta:
            return self._filled[id(tensor)] if id(tensor) in self._filled else drawn(tensor, str(self.home))
        made = tensor.detach().to(self.home, copy=True)
        if isinstance(tensor, nn.Parameter):
            made = nn.Parameter(made, requires_grad=tensor.requires_grad)
        vars(made).update(vars(tensor))
        return made


def _held(module: nn.Module) -> dict[str, Tensor]:
    return dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])
