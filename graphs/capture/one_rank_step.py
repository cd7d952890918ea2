"""One rank's step, as `torch.fx` has it, becomes an op graph: of autoparallel, DTensor, FSDP or one's own collectives.

The graph is what `make_fx` writes down of a rank's code on tensors without data, forward and backward in one or each by
itself; every node has what it gives in `meta["val"]`. Costs and names are those of captured models
(`graphs.capture.traced_nodes`), and further rules say what is an op:

- A view and one of several results are none: who reads them waits for whatever wrote last to the memory behind them.
- What the graph is given is held for the whole step. Which of it are parameters is not known, nor is the optimizer.
- A functional collective is one (`graphs.formats.collectives`), of the bytes that the rank puts in. Its ranks are those
  of its process group, which must exist in this process, as it does where the graph was made; else they are the first
  ones, as many as it says.
- `wait_tensor` takes no time; who reads its result reads the collective's. It holds up what follows it in its stream
  where ops run in the program's order (`graphs.transforms.one_rank`).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from torch.distributed import distributed_c10d
from torch.fx import GraphModule, Node

from graphs.capture.traced_nodes import (
    bytes_of,
    flops_of,
    kind_of,
    multiplied_in,
    name_of,
    tensors_of,
    traffic,
    viewed,
)  # fmt: skip
from graphs.formats.chakra_nodes import Collective
from graphs.formats.collectives import WAIT, communication_kind
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.op_graph.held_tensors import HeldTensors

_COLLECTIVES = {  # by the beginning of a name; the first that fits
    "all_reduce": Collective.ALL_REDUCE, "all_gather_into_tensor": Collective.ALL_GATHER,
    "reduce_scatter_tensor": Collective.REDUCE_SCATTER, "all_to_all_single": Collective.ALL_TO_ALL,
    "shard_dim_alltoall": Collective.ALL_TO_ALL, "broadcast": Collective.BROADCAST,
}  # fmt: skip
_NAMESPACES = ("_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor")


def rank_graph(traced: GraphModule, *, name: str = "") -> OpGraph:
    """The op graph of a traced step. Raises InputError for nodes that say nothing of what they give, or of no size."""
    name = name or type(traced).__name__
    nodes = list(traced.graph.nodes)
    for node in nodes:
        if node.op in ("call_module", "call_method") or (node.op != "output" and "val" not in node.meta):
            raise InputError(
                f"{name}: node {node.name!r} does not say what it gives; trace the step by "
                "torch.fx.experimental.proxy_tensor.make_fx(step, tracing_mode='fake')(*inputs)"
            )
        if any(not isinstance(size, int) for tensor in tensors_of(node) for size in tensor.shape):
            raise InputError(f"{name}: node {node.name!r} has no fixed shape; trace the step with inputs of one size")
    step = _Step()
    for node in nodes:
        step.add(node)
    if not step.ops:
        raise InputError(f"{name}: no node of the graph computes anything")
    return step.graph(name)


class _Step:
    """The ops so far, and which of them wrote what."""

    def __init__(self) -> None:
        self.ops: list[Node] = []
        self._base: dict[Node, Node] = {}  # the node that made the memory that a node gives
        self._writer: dict[Node, int] = {}  # by what made it the op that wrote to it last
        self._wait: dict[Node, int] = {}  # likewise the op that waits for it
        self._edges: dict[tuple[int, int], bool] = {}  # whether each only orders
        self._held: dict[Node, list[int]] = {}  # the readers of what was there before

    def add(self, node: Node) -> None:
        """A node, after all that it reads."""
        if node.op == "output" or not tensors_of(node):
            return
        if node.op != "call_function":
            self._base[node], self._held[node] = node, []
            return
        seen = viewed(node) if not _changed(node) else None
        if seen is not None and not _is_wait(node):
            self._base[node] = self._base[seen]
            return
        self._add_op(node)

    def _add_op(self, node: Node) -> None:
        number, read = len(self.ops), [self._base[each] for each in node.all_input_nodes if each in self._base]
        self.ops.append(node)
        for base in read:
            if base in self._writer:
                self._edges[self._writer[base], number] = False
            elif base in self._held:
                self._held[base].append(number)
            if base in self._wait:
                self._edges.setdefault((self._wait[base], number), True)
        if _is_wait(node):
            self._base[node], self._wait[read[0]] = read[0], number
            return
        changed = [self._base[each] for each in _changed(node)]
        for base in changed:
            self._writer[base] = number
            self._wait.pop(base, None)
        self._base[node] = changed[0] if changed else node
        self._writer[self._base[node]] = number

    def graph(self, name: str) -> OpGraph:
        """All ops."""
        kinds = [_collective(node) or (WAIT if _is_wait(node) else kind_of(node)) for node in self.ops]
        free = [kind == WAIT for kind in kinds]
        counted = [
            (0.0, 0.0) if none else (flops_of(node), _accessed(node)) for node, none in zip(self.ops, free, strict=True)
        ]
        flops, accessed = np.array(counted).T
        made = [
            0.0 if none or _changed(node) else bytes_of(tensors_of(node))
            for node, none in zip(self.ops, free, strict=True)
        ]
        held = {node: readers for node, readers in self._held.items() if readers}
        precisions = [
            multiplied_in(node.all_input_nodes) if work else "" for node, work in zip(self.ops, flops, strict=True)
        ]
        return OpGraph(
            name, tuple(map(name_of, self.ops)), tuple(kinds), flops, accessed, np.array(made),
            np.array(list(self._edges), np.int64).reshape(-1, 2), np.array(list(self._edges.values()), np.bool_),
            precisions=tuple(precisions),
            held=HeldTensors(
                np.array([bytes_of(tensors_of(node)) for node in held]),
                np.array([(op, place) for place, each in enumerate(held.values()) for op in each], np.int64),
            ) if held else None,
        )  # fmt: skip


def _is_wait(node: Node) -> bool:
    return kind_of(node).endswith(".wait_tensor")


def _changed(node: Node) -> list[Node]:
    """What a node writes to, of what it reads."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    given = [
        node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [each for each in _flat(given) if isinstance(each, Node)]


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _accessed(node: Node) -> float:
    """Bytes that an op reads and writes, or that a rank puts into a collective."""
    if not _collective(node):
        return traffic(node)
    put_in = node.args[0]
    return sum(bytes_of(tensors_of(each)) for each in _flat([put_in]) if isinstance(each, Node))


def _collective(node: Node) -> str:
    """The kind of a collective; "" of all else."""
    space, _, called = kind_of(node).partition(".")
    if space not in _NAMESPACES:
        return ""
    found = next((kind for start, kind in _COLLECTIVES.items() if called.startswith(start)), None)
    return "" if found is None else communication_kind(found.name, _ranks(node))


def _ranks(node: Node) -> Sequence[int]:
    """Those of the process group of a collective; none if they are not known."""
    schema: Any = getattr(node.target, "_schema", None)
    named = {each.name: value for each, value in zip(schema.arguments, node.args, strict=False)} | dict(node.kwargs)
    group = named.get("group_name", named.get("tag"))
    try:
        found = distributed_c10d._resolve_process_group(group) if isinstance(group, str) else group  # type: ignore[arg-type,attr-defined]  # text is what graphs hold
        return distributed_c10d.get_process_group_ranks(found)  # type: ignore[arg-type]  # or a group itself
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):  # of another process
        size = named.get("group_size", 0)
        return range(size if isinstance(size, int) else 0)
