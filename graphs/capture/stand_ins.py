"""Stand-ins: a module runs on tensors that have shapes alone, and is afterwards as it was."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

_CONTAINERS = (dict, OrderedDict, list, set)


class StandIns:
    """Tensors without data, each in place of a tensor of a module or of its inputs.

    All are on one device. On the meta device they are those of PyTorch, which cost little; else fake ones, which know
    the device that they stand for.
    """

    data = ""  # whose values they have: none

    def __init__(self, home: torch.device) -> None:
        self.home = home
        self.are_meta = home.type == "meta"
        self._fake = None if self.are_meta else FakeTensorMode(allow_non_fake_inputs=True)
        self._of: dict[int, Tensor] = {}  # by the id of the tensor
        self._original: dict[int, Tensor] = {}  # by the id of the stand-in; kept, so that no id is given twice
        self._descriptions: dict[tuple[object, ...], Tensor] = {}  # by shape, strides and type

    def mode(self) -> AbstractContextManager[object]:
        """The mode in which operations on the stand-ins run."""
        return self._fake if self._fake is not None else nullcontext()

    def __call__(self, tensor: Tensor) -> Tensor:
        """The stand-in of a tensor."""
        if id(tensor) not in self._of:
            self._of[id(tensor)] = made = self._like(tensor)
            self._original[id(made)] = tensor
        return self._of[id(tensor)]

    def __contains__(self, tensor: Tensor) -> bool:
        """Whether a tensor is one of them."""
        return id(tensor) in self._original

    def original(self, tensor: Tensor) -> Tensor:
        """What a tensor stands for; one that is no stand-in, as it is."""
        return self._original.get(id(tensor), tensor)

    def pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Each tensor, and its stand-in."""
        return ((tensor, self._of[id(tensor)]) for tensor in self._original.values())

    def described(self, out: Any) -> Any:
        """What an operation has returned, as other tensors on the meta device, so that its own are freed in time."""
        if isinstance(out, Tensor) and out.layout is torch.strided:
            key = out.shape, out.stride(), out.dtype
            if key not in self._descriptions:
                with _disable_current_modes():
                    self._descriptions[key] = torch.empty_strided(*key[:2], dtype=key[2], device="meta")
            return self._descriptions[key]
        return type(out)([self.described(part) for part in out]) if isinstance(out, (tuple, list)) else out

    def computed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        """Take notice of an operation that was computed, as none is here."""

    def _like(self, tensor: Tensor) -> Tensor:
        if self._fake is not None and tensor.device == self.home:
            return self._fake.from_tensor(tensor, static_shapes=True)
        with self.mode():
            made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=self.home)
            made.requires_grad_(tensor.requires_grad)
        if isinstance(tensor, nn.Parameter):
            made = nn.Parameter(made, requires_grad=tensor.requires_grad)
        vars(made).update(vars(tensor))
        return made


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Undoes, at the end, what was done inside to the attributes of a module: parameters, buffers, hooks and others."""
    saved: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = []
    for part in module.modules():
        held = dict(vars(part))
        contents = {key: copy(value) for key, value in held.items() if type(value) in _CONTAINERS}
        saved.append((vars(part), held, contents))
    try:
        yield
    finally:
        for attributes, held, contents in saved:
            attributes.clear()
            attributes.update(held)
            for key, content in contents.items():
                container = attributes[key]
                container.clear()
                container.extend(content) if isinstance(container, list) else container.update(content)


def put_into(module: nn.Module, stand_ins: StandIns) -> None:
    """Replace the parameters and buffers of a module by their stand-ins, inside of `unchanged`."""
    for part in module.modules():
        for held in (part._parameters, part._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    held[name] = stand_ins(tensor)  # type: ignore[assignment]  # of the same kind
