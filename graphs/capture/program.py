"""TracedProgram: a module as ATen operations, whichever tracer wrote them down."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.fx import Node

from graphs.capture.checkpoints import CheckpointedNodes
from graphs.capture.known_values import Answer
from graphs.capture.own_functions import OwnCall
from graphs.op_graph import Call


@dataclass(frozen=True, eq=False)
class TracedProgram:
    """One forward pass; the output of each node is in `node.meta["val"]`, a tensor without data, or several."""

    nodes: Sequence[Node]  # each after those that it reads
    outputs: Sequence[Node]  # the results that the module returns
    parameters: Mapping[Node, nn.Parameter]  # the parameter that a node stands for
    calls: Mapping[Node, Call] = field(default_factory=dict)  # the call in the module's code that a node comes from
    memories: Sequence[tuple[Sequence[Node], Node]] = ()
    """Nodes whose outputs lie in the same memory, and the last node that ran before it was freed; none of a module that
    was exported."""
    names: Mapping[nn.Parameter, str] = field(default_factory=dict)  # the first name of each parameter
    inputs: Mapping[Node, Tensor] = field(default_factory=dict)  # the input, buffer or constant that a node stands for
    requires_grad: Set[Node] = frozenset()
    """The nodes through whose outputs autograd sends gradients back: a node sends one to what it reads if both are
    here. So what `detach`, `no_grad` or a parameter that is not trained gives is not here."""
    own: Set[Node] = frozenset()  # those of them in custom functions, which send gradients whatever they compute
    cuts: Set[tuple[Node, Node]] = frozenset()  # what a node reads without giving it a gradient
    leaves: Set[Node] = frozenset()  # those of them that are given a gradient by themselves, `x.requires_grad_()`
    unseen: Sequence[str] = ()
    """The lines that change a tensor with a gradient in place in `no_grad`: its gradient stays that of before."""
    own_calls: Sequence[OwnCall] = ()  # of functions whose backward pass the user has written
    hooks: Sequence[str] = ()  # the lines that put hooks on gradients, which are not captured; "" of a module's hook
    trained: Sequence[Node] = ()  # the outputs whose sum is the loss
    checkpoints: Sequence[CheckpointedNodes] = ()
    unknown: str = ""  # why it is not known what is trained, and the remedy; "" if it is
    changed: Mapping[str, Node | None] | None = None
    """The value that each buffer or parameter, by name, has after a step that changes it; None instead of a node if
    that is not known, as where it was changed through a view of it. None of a module that was exported."""
    returned: object = None
    """What the module returns, with stand-ins without data for tensors; None of a module that was exported."""
    states: Sequence[Node] = ()
    """What is computed besides and is no part of the loss: tensors in objects that are returned, such as key-value
    caches, and questions for values that the module's code asks."""
    by_values: str = ""
    """Whose values the program is right for, where sizes or control flow depend on these: "the example", "random data";
    empty where it is right for all."""
    answers: Sequence[Answer] = ()  # what the module's code asked of values that may change, and was told
