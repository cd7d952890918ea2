"""Lifetimes: how long a module's code keeps what its operations make, though nothing may read it any more.

A variable of a module's code holds a tensor as long as the code runs, or until it is given another value: `x` in

    def forward(self, x):
        x = self.embed(x)
        return self.head(self.layers(x))

So do the arguments of a call, and PyTorch's own loops over time steps, which hold the outputs of all steps. While a
module is recorded, this is seen: a tensor is freed where the module's code frees it.
"""

import gc
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch.fx import Graph, Node

from graphs.capture.program import TracedProgram
from graphs.capture.unsent import last_readers
from graphs.op_graph import OpGraph
from graphs.op_graph.autograd import Memory


class Lifetimes:
    """Of the memories of tensors, while nodes that make these are written into a graph; views lie in the same one."""

    def __init__(self, graph: Graph) -> None:
        self.freed: list[tuple[list[Node], Node]] = []  # as `TracedProgram.memories`
        self._graph = graph
        self._tensors = Counter[int]()  # how many lie in each memory
        self._nodes: dict[int, list[Node]] = {}  # whose outputs they are

    def hold(self, memory: int, node: Node) -> None:
        """Note one more tensor in a memory, the output of a node."""
        self._tensors[memory] += 1
        self._nodes.setdefault(memory, []).append(node)

    def release(self, memory: int) -> None:
        """Note one tensor less in a memory."""
        self._tensors[memory] -= 1
        if not self._tensors[memory] and memory in self._nodes:  # not so once the module has run
            self.freed.append((self._nodes.pop(memory), next(iter(reversed(self._graph.nodes)))))

    def close(self) -> None:
        """Note that the module has run: what is left is kept to the end."""
        last = next(iter(reversed(self._graph.nodes)))
        self.freed += [(nodes, last) for nodes in self._nodes.values()]
        self._nodes.clear()


@contextmanager
def freed_at_once() -> Iterator[None]:
    """Inside, no tensors are freed at random, as by the collector of Python's garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def kept_alive(graph: OpGraph, program: TracedProgram, op: Mapping[Node, int]) -> tuple[Memory, ...]:
    """The memories that are kept longer than until the last op has read them, or that several ops share.

    `op` are the ops that the nodes of a program are in its graph.
    """
    ran, last = dict[Node, int](), -1  # the last op when a node has run
    for node in program.nodes:
        ran[node] = last = max(last, op.get(node, -1))
    read, found = last_readers(graph), list[Memory]()
    for nodes, freed in program.memories:
        ops = tuple(sorted({op[node] for node in nodes if node in op}))
        if not ops or nodes[0].op == "placeholder" or nodes[0].meta["val"].nbytes * 2 < graph.output_bytes[ops[0]]:
            continue  # what exists before the step is held in any case; of several outputs, the largest is followed
        if len(ops) > 1 or ran[freed] > read[ops[0]]:
            found.append(Memory(ops, ran[freed]))
    return tuple(sorted(found, key=lambda each: each.ops))
