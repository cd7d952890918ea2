"""OnParts: the operations that DTensors run on the part of each that a process has, and what is sent for it.

Of a tensor of S bytes on n devices a device receives, as rings send it:

    all-gather, all-to-all     S (n - 1) / n      S: the result
    reduce-scatter             S (n - 1) / n      S: what is reduced
    all-reduce                 2 S (n - 1) / n
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed import distributed_c10d
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from envs.running.clock import mark
from envs.running.progress import ACTIVITY

aten = torch.ops.aten

_NAMESPACES = ("_c10d_functional", "_dtensor")
_WAYS = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0, "alltoall": 1.0}


@dataclass(frozen=True)
class DTensorCollective:
    """A collective operation that a process took part in."""

    name: str  # "all_reduce"
    devices: int
    size: float  # bytes that the process received


class OnParts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The mode in which a step on DTensors runs.

    A DTensor that is gathered has another layout in memory than PyTorch believes it has, so that its parts may not
    allow a view. Such a view is a copy here; changing that in place, which would not be seen elsewhere, is an error.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.collectives: list[DTensorCollective] = []
        self._copied: set[StorageWeakRef] = set()
        self._begun: dict[StorageWeakRef, str] = {}  # collectives, by what they make

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs the operation; those on DTensors come again as operations on their parts."""
        if any(issubclass(each, DTensor) for each in types):
            return self._joined(*args) if func is aten.cat.default else NotImplemented
        function: Callable[..., Any] = func
        if func is aten.view.default:
            return self._viewed(*args)
        if self._copied and func._schema.is_mutable and self._is_copied(args[0]):
            raise RuntimeError(f"{func.name()} changes a tensor in place whose memory DTensor has laid out otherwise")
        if func is torch.ops._c10d_functional.wait_tensor.default:
            return self._awaited(*args)
        out = function(*args, **(kwargs or {}))
        if func.namespace in _NAMESPACES:
            self._note(func.name().partition("::")[2].partition(".")[0], tree_leaves((args, kwargs)), out)
        return out

    def _joined(self, tensors: Sequence[Tensor], dim: int = 0) -> Any:
        """A concatenation of DTensors without the empty tensors, of one dimension, of caches that have just begun.

        PyTorch skips these, and DTensor would divide them as the others.
        """
        filled = [each for each in tensors if each.shape != (0,)]
        if len(filled) in (0, len(tensors)):
            return NotImplemented
        with self:
            return aten.cat.default(filled, dim)

    def _awaited(self, tensor: Tensor) -> Tensor:
        """What a collective makes of this process's part, when it is there."""
        what = self._begun.pop(StorageWeakRef(tensor.untyped_storage()), "a collective")  # type: ignore[no-untyped-call]
        ACTIVITY.note(what, waits=True, after=mark(tensor.device))
        there: Tensor = torch.ops._c10d_functional.wait_tensor.default(tensor)
        ACTIVITY.note(f"what follows {what}", after=mark(tensor.device))
        return there

    def _viewed(self, part: Tensor, shape: Sequence[int]) -> Tensor:
        try:
            return aten.view.default(part, shape)  # type: ignore[no-any-return]
        except (RuntimeError, ValueError):  # the latter of tensors without data
            if part.numel() != torch.Size(shape).numel() and -1 not in shape:
                raise
            copied: Tensor = part.reshape(shape)
            self._copied = {each for each in self._copied if not each.expired()}  # type: ignore[no-untyped-call]
            self._copied.add(StorageWeakRef(copied.untyped_storage()))  # type: ignore[no-untyped-call]
            return copied

    def _is_copied(self, tensor: Any) -> bool:
        memory = StorageWeakRef(tensor.untyped_storage()) if isinstance(tensor, Tensor) else None  # type: ignore[no-untyped-call]
        return memory in self._copied

    def _note(self, name: str, given: Sequence[Any], out: Any) -> None:
        ways = next((ways for key, ways in _WAYS.items() if key in name), 0.0)
        group = next((value for value in reversed(given) if isinstance(value, str)), None)
        if ways and group is not None:
            members = distributed_c10d._resolve_process_group(group)  # type: ignore[attr-defined,arg-type]
            devices = distributed.get_world_size(members)
            size = max(_bytes(given), _bytes(tree_leaves(out)))
            self.collectives.append(DTensorCollective(name, devices, ways * size * (devices - 1) / devices))
            ranks = ", ".join(map(str, distributed.get_process_group_ranks(members)))
            what = f"collective {len(self.collectives)} of the step, {name} of processes {ranks}"
            made = [each for each in tree_leaves(out) if isinstance(each, Tensor)]
            self._begun |= {StorageWeakRef(each.untyped_storage()): what for each in made}  # type: ignore[no-untyped-call]


def _bytes(values: Sequence[Any]) -> int:
    return sum(each.numel() * each.element_size() for each in values if isinstance(each, Tensor))
