"""Training step: to a forward graph, add the ops of its backward pass and of the optimizer.

The rules are ours; they follow what PyTorch's autograd does, one op at a time:

- A synthetic op "loss" reads all outputs of the forward pass that depend on a trained weight; of a model that returns a
  dict with a "loss", that alone. `graphs.capture.gradient_flow` has which ops send a gradient to which.
- `X.grad` computes the gradient of what X read from the gradient of X's output, which its consumers' `.grad` ops made.
  It costs what X costs; a product as often as it has factors whose gradients these are (`graphs.capture.operands`),
  five products for two if it is fused attention, which computes its scores again. An op has one output tensor here, so
  it is as large as the outputs of X's producers on average; for a part of a tensor, as the part. What the gradients of
  all of them take in addition, X.grad holds as long as that (`OpGraph.unsent_bytes`): both factors have one of their
  own, both summands share the one that arrives. What formulas make on the way, it frees (`graphs.capture.unsent`).
  Gradients of inputs and buffers that ask for one (`requires_grad`) are among them; no op reads these.
- `X.grad_weight` computes the gradient of all weights that X reads, at the cost of X; that of a product's bias alone is
  a sum of what arrives. Where ops share a weight (a recurrent net, unrolled), each adds to the sum that it receives
  from the next one in forward order; meanwhile there are both and, of the first two of a matrix, which are views of
  transposed products, their sum. The last sum is held until the update (`graphs.op_graph.weight_memory`).
- The gradient of a table that X looks up is dense: all of it is written, however few rows X has read. With sparse=True
  it holds the rows that X has read, at most all of them, and where they are; several such look-ups of one table append
  theirs, and a use of another kind makes the sum dense. The update touches these rows alone, as SparseAdam does.
- `X.update` follows the first op that uses a weight, once its gradient is complete, and `X.refresh` brings the new
  value to the others, so that splitting the users of one weight over devices costs the transfers that it must.
- Ops of a checkpoint (`torch.utils.checkpoint`) keep nothing. `X.recompute` is X again, once the gradient has arrived
  at the first op of the checkpoint that has saved something; the checkpoint's backward ops read it in place of X. As in
  PyTorch, ops run again up to the last that has saved something, or all with reentrant autograd. They share a device.
- What autograd saves for the backward pass is an edge from its producer to the op that needs it, and so takes memory
  until then. Results that only autograd sees (a mask, indices, the statistics of a norm) are held with what X has made
  or read, whichever is kept.

A graph without signatures, as one from a file, does not say in which places an op reads its producers: what reads the
same tensor twice (x * x) is taken there for a product with an input or a number, and each side of a division is treated
as the other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from graphs.capture.gradient_flow import GradientFlow, aten_name
from graphs.capture.operands import Operands
from graphs.capture.unsent import ATTENTION, SAVES_RESULTS, gradients_bytes, kept_bytes, results_bytes, working_bytes
from graphs.foundation.errors import InputError
from graphs.op_graph import RECOMPUTED, SPARSE, Ints, OpGraph, Phase
from graphs.op_graph.autograd import Autograd, Checkpoint, Pair
from graphs.op_graph.batch_law import BatchLaw
from graphs.op_graph.optimizers import UPDATE_TRAFFIC
from graphs.op_graph.precision import appended_precisions
from graphs.op_graph.subgraph import subgraph

_LOSS_BYTES = 4.0
Costs = tuple[float, float, float]  # FLOP, bytes accessed, output bytes
Added = tuple[str, str, Costs, Phase, int]  # an op's name, kind, costs and phase, and its forward op or -1

# The gradient of the input of these needs the weight alone, and the gradient of the weight the input alone.
_LINEAR = {"mm", "addmm", "bmm", "baddbmm", "linear", "convolution"}
# An operand of these is saved if another one needs a gradient; a number, an input or a buffer needs none.
_PRODUCTS = _LINEAR | {"mul", "div"}
_OF_TWO = {"mm", "bmm"}  # products that read nothing else
_MATRIX_PRODUCTS = {"mm", "addmm", "linear"}
# All of what these read of an op or a weight gets a gradient, though they read as much of it as they write.
_LOOK_UPS = {"embedding", "_embedding_bag", "gather", "index", "index_select", "nll_loss2d_forward", "nll_loss_forward"}
# These save indices or masks: the outputs of ops without gradient, or of none.
_SELECTS = {
    "embedding", "gather", "index", "index_fill", "index_put", "index_select",
    "masked_fill", "masked_scatter", "max_unpool2d", "max_unpool3d", "scatter", "scatter_add", "take", "where",
}  # fmt: skip
_CONSTANTS = {"full", "full_like", "ones", "ones_like", "scalar_tensor", "zeros", "zeros_like"}
_SAVES_OUTPUT = {
    "exp", "expm1", "log_softmax", "_log_softmax", "reciprocal", "relu", "rsqrt", "sigmoid", "softmax", "_softmax",
    "sqrt", "tan", "tanh",
}  # fmt: skip
_SAVES_BOTH = {
    "amax", "amin", "aminmax", ATTENTION, "_cdist_forward", "cumprod", "linalg_vector_norm", "logcumsumexp",
    "logsumexp", "norm", "prod", "std", "std_mean",
}  # fmt: skip
_SAVES_NOTHING = {
    "add", "affine_grid_generator", "as_strided_scatter", "cat", "ceil", "clone", "col2im", "constant_pad_nd", "copy",
    "cumsum", "diag_embed", "_fft_c2c", "_fft_c2r", "_fft_r2c", "flip", "floor", "frac", "im2col", "max", "mean",
    "median", "min", "native_dropout", "neg", "pixel_shuffle", "pixel_unshuffle", "repeat", "roll", "round",
    "select_scatter", "sign", "slice_scatter", "sort", "stack", "sub", "sum", "_to_copy", "topk", "trace", "tril",
    "triu", "trunc", "upsample_bicubic2d", "_upsample_bicubic2d_aa", "upsample_bilinear2d", "_upsample_bilinear2d_aa",
    "upsample_linear1d", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
    "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_trilinear3d",
}  # fmt: skip


def training_step(forward: OpGraph) -> OpGraph:
    """Forward, backward and update ops of one training step; every op that is added is tied to its forward op.

    Every weight that the loss has a gradient for is trained; others are frozen. Of the graph's batch law the samples
    alone are kept: it says nothing of the ops that are added. Raises InputError for a graph that is a training step
    already, or has no weight to train.
    """
    if (forward.phase != Phase.FORWARD).any():
        raise InputError(f"graph {forward.name!r} is a training step already; leave that out")
    sizes = forward.transfer_bytes, forward.edge_bytes, forward.unsent_bytes
    if forward.devices or forward.measured_on or any(map(len, sizes)):
        raise InputError(
            f"graph {forward.name!r} gives devices, times or transfers of its forward ops alone; give them for its "
            "training step instead"
        )
    if forward.autograd is not None and forward.autograd.unknown:
        raise InputError(f"{forward.name}: {forward.autograd.unknown}")
    law = forward.batch_law
    samples = None if law is None else BatchLaw(law.samples)
    return _StepBuilder(replace(forward, batch_law=samples, working_bytes=np.zeros(0))).build()


def forward_pass(step: OpGraph) -> OpGraph:
    """The forward ops of a training step, its loss among them, without what they hold for the backward pass."""
    return replace(subgraph(step, step.phase == Phase.FORWARD), unsent_bytes=np.zeros(0))


class _StepBuilder:
    """Adds ops to a forward graph."""

    def __init__(self, forward: OpGraph) -> None:
        self.graph = _with_loss(forward)
        ops = len(self.graph)
        self.kind = [aten_name(kind) for kind in self.graph.kinds]
        data = self.graph.edges[~self.graph.control].tolist()
        self.producers = _lists(((v, u) for u, v in data), ops)
        self.consumers = _lists(data, ops)
        self.weights = _lists(self.graph.weight_uses.tolist(), ops)
        self.operands = Operands(self.graph, self.kind)
        self.flow = GradientFlow.of(self.graph)
        self.grad: dict[int, int] = {}  # forward op -> its .grad
        self.grad_weight: dict[int, int] = {}  # forward op -> its .grad_weight
        self.sums: set[int] = set()  # those .grad_weight that have added to another one
        self.sparse_bytes: dict[int, float] = {}  # .grad_weight whose output is sparse -> how large that is
        self.checkpoint = {op: part for part in (forward.autograd or Autograd()).checkpoints for op in part.ops}
        self.again: dict[int, int] = {}  # forward op of a checkpoint -> its .recompute
        self.added: list[Added] = []
        self.orders: list[tuple[int, int]] = []  # edges that carry nothing
        self.edges: list[tuple[int, int]] = []
        self.unsent: dict[int, float] = {}  # what an op holds in addition to its output
        self.working: dict[int, float] = {}  # and while it runs

    def build(self) -> OpGraph:
        self._add_backward()
        self._add_optimizer()
        frozen = np.ones(len(self.graph.weights), np.bool_)
        frozen[[weight for op in self.grad_weight for weight in self.flow.weights[op]]] = False
        step = _appended(replace(self.graph, group=self._groups()), self.added, self.edges, self.orders)
        unsent, working = np.zeros((2, len(step)))
        unsent[[*self.unsent]] = [*self.unsent.values()]
        working[[*self.working]] = [*self.working.values()]
        working += kept_bytes(step, (self.graph.autograd or Autograd()).kept_alive)
        return replace(step, frozen=frozen, autograd=None, unsent_bytes=unsent, working_bytes=working)

    def _add(self, suffix: str, op: int, phase: Phase, costs: Costs, reads: Iterable[int]) -> int:
        added = len(self.graph) + len(self.added)
        kind = f"{self.graph.kinds[op]}.{suffix}" if phase is Phase.BACKWARD else suffix
        self.added.append((f"{self.graph.names[op]}.{suffix}", kind, costs, phase, op))
        self.edges.extend((source, added) for source in dict.fromkeys(reads))
        return added

    # ---- backward ----------------------------------------------------------------------------------------

    def _add_backward(self) -> None:
        loss = len(self.graph) - 1
        carried: dict[int, int] = {}  # weight -> the op that added to its gradient last
        for op in self.graph.topological_order[::-1].tolist():
            senders = (consumer for consumer in self.consumers[op] if op in self.flow.towards[consumer])
            arriving = [loss] if op == loss else [self.grad[each] for each in senders if each in self.grad]
            if not arriving:
                continue
            part = self.checkpoint.get(op)
            if part is not None and self.again.keys().isdisjoint(part.ops) and (part.whole or self._keeps(op)):
                self._recompute(part, arriving)
            if self.flow.towards[op] or self.flow.inputs[op]:
                self.grad[op] = self._add_grad(op, arriving)
            if trained := self.flow.weights[op]:
                earlier = [carried[weight] for weight in trained if weight in carried]
                self.grad_weight[op] = self._add_grad_weight(op, arriving, earlier)
                carried.update(dict.fromkeys(trained, self.grad_weight[op]))
        self._add_results()

    def _add_grad(self, op: int, arriving: list[int]) -> int:
        graph, towards, inputs = self.graph, self.flow.towards[op], self.flow.inputs[op]
        sources = self._sources(op)
        sizes = np.append(graph.output_bytes[towards], graph.held.bytes[inputs] if graph.held and inputs else ())
        is_free = graph.flops[op] == 0 and graph.bytes_accessed[op] == 0
        output_bytes = graph.output_bytes[op] if is_free else sizes.mean()
        costs = *self._backward_cost(op, self._products(op, sources), sizes.sum()), output_bytes
        needs_weight_alone = self.kind[op] in _LINEAR and self.weights[op] and not self.operands.known(op)
        saved = [] if is_free or needs_weight_alone else self._read_again(op, sources)
        added = self._add("grad", op, Phase.BACKWARD, costs, [*arriving, *saved])
        if not is_free:
            casts = [each for each in towards if self.kind[each] == "_to_copy" and not self.producers[each]]
            lasting = ~np.isin(sources, casts)  # gradients of casts go at once
            held = gradients_bytes(self.kind[op], sizes[lasting] if lasting.any() else sizes)
            self.unsent[added] = max(held - output_bytes, 0.0)
            of_weights = graph.weights[self.flow.weights[op]]
            of_divisor = self.kind[op] == "div" and self.operands.known(op) and 1 in self.operands.factors(op, sources)
            operands, arriving_bytes = np.append(sizes, of_weights), float(graph.output_bytes[op])
            self.working[added] = working_bytes(self.kind[op], operands, arriving_bytes, of_divisor=of_divisor)
        return added

    def _add_grad_weight(self, op: int, arriving: list[int], earlier: list[int]) -> int:
        """The gradient of the weights that an op reads, added to those that later ops have computed for them."""
        trained = self.flow.weights[op]
        sources = [-1 - weight for weight in trained]
        times = self._products(op, sources)
        size = float(self.graph.weights[trained].sum())
        looks_up = self.graph.kinds[op].endswith(SPARSE) and len(trained) == 1
        is_sparse = looks_up and all(other in self.sparse_bytes for other in earlier)
        if is_sparse:
            size = float(self.graph.bytes_accessed[op] - self.graph.output_bytes[op])  # rows, and where they are
            size += sum(self.sparse_bytes[other] for other in earlier)
        costs = *self._backward_cost(op, times, size), size
        read = [*arriving, *earlier, *self._read_again(op, sources)]
        added = self._add("grad_weight", op, Phase.BACKWARD, costs, read)
        if is_sparse:
            self.sparse_bytes[added] = size
        elif self.kind[op] in _MATRIX_PRODUCTS and earlier and self.sums.isdisjoint(earlier):
            self.working[added] = max(size - float(self.graph.output_bytes[op]), 0.0)  # the gradient has been read
        self.sums.update([added] if earlier else [])
        return added

    def _sources(self, op: int) -> list[int]:
        """What the gradient op of an op sends gradients to, but for weights, as `Signatures.sources` number it."""
        return [*self.flow.towards[op], *(-1 - len(self.graph.weights) - tensor for tensor in self.flow.inputs[op])]

    def _products(self, op: int, towards: list[int]) -> float:
        """How often what an op does is done for its gradients towards some ops, or weights, by sources' numbers."""
        of_weights = towards[0] < 0
        if self.kind[op] == ATTENTION:  # all gradients are computed together
            return 0.0 if of_weights and op in self.grad else 2.5
        if self.graph.flops[op] == 0:
            return 1.0
        if self.operands.known(op):
            return float(len(self.operands.factors(op, towards)))
        if of_weights:
            return 2.0 if self.kind[op] in _OF_TWO and len(towards) == 2 else 1.0
        return 2.0 if not self.flow.weights[op] and len(towards) == len(self.producers[op]) > 1 else 1.0

    def _backward_cost(self, op: int, times: float, gradient_bytes: float) -> tuple[float, float]:
        """FLOP and bytes accessed of a gradient of the given size that costs `times` what its op does.

        One that takes no product is a sum of the gradient that arrives.
        """
        traffic = times * self.graph.bytes_accessed[op]
        if times == 0:
            traffic = self.graph.output_bytes[op] + gradient_bytes
        elif self.kind[op] in _LOOK_UPS:  # these read no more than they write
            traffic += max(gradient_bytes - self.graph.output_bytes[op], 0.0)
        return times * self.graph.flops[op], traffic

    def _saved(self, op: int, towards: list[int]) -> list[int]:
        """The ops whose outputs autograd keeps for gradients of an op towards some others, or weights.

        An unknown op keeps what it read. Of a product with a weight, element by element, both gradients are made by one
        operation, which keeps what either needs.
        """
        kind, producers = self.kind[op], self.producers[op]
        if self.operands.known(op) and not (kind in _PRODUCTS - _LINEAR and self.flow.weights[op]):
            needed = self.operands.needed(op, towards)
            return [producer for producer in producers if producer in needed]
        trained = self.flow.towards[op]
        if kind in _SAVES_OUTPUT:
            return [op]
        if kind in _SAVES_NOTHING or op == len(self.graph) - 1:
            return []
        if kind in _SELECTS:
            return [p for p in producers if p not in trained and self.kind[p] not in _CONSTANTS]
        if kind in _PRODUCTS and not self.flow.weights[op]:
            return [p for p in producers if trained != [p]]
        return [*producers, op] if kind in _SAVES_BOTH else producers

    def _add_results(self) -> None:
        """Let what is kept hold the results of ops that only autograd sees."""
        kept, signatures = {producer for producer, _ in self.edges}, self.graph.signatures
        for op in sorted(self.grad.keys() | self.grad_weight.keys()):
            if size := results_bytes(self.kind[op], signatures.signature(op) if signatures else None):
                near = [self.again.get(each, each) for each in (op, *self.producers[op])]
                holder = next((each for each in near if each in kept), near[0])
                self.unsent[holder] = self.unsent.get(holder, 0.0) + size

    # ---- checkpoints -------------------------------------------------------------------------------------

    def _groups(self) -> Ints:
        """(ops,) the groups of the forward ops: those of a checkpoint, which runs again as a whole, share a device."""
        group = self.graph.group.copy()
        for part in dict.fromkeys(self.checkpoint.values()):
            ops = list(part.ops)
            tied = group[ops]
            group[np.isin(group, tied[tied >= 0])] = group[ops] = group.max() + 1
        return group

    def _recompute(self, part: Checkpoint, arriving: list[int]) -> None:
        """Add the ops of a checkpoint that run again, once the gradients have arrived."""
        keeping = [op for op in part.ops if self._keeps(op)]
        last = max(keeping, default=-1)
        if last >= 0 and self.kind[last] not in _SAVES_OUTPUT | _SAVES_BOTH | SAVES_RESULTS.keys():
            last -= 1  # it saves what it reads before it runs
        graph, found = self.graph, dict[int, int]()
        for op in part.ops if part.whole else [op for op in part.ops if op <= last]:
            costs = float(graph.flops[op]), float(graph.bytes_accessed[op]), float(graph.output_bytes[op])
            reads = [found.get(producer, producer) for producer in self.producers[op]]
            again = self._add(RECOMPUTED[1:], op, Phase.BACKWARD, costs, reads)
            if found.keys().isdisjoint(self.producers[op]):
                self.orders += [(gradient, again) for gradient in arriving]
            found[op] = again
        self.again |= found

    def _keeps(self, op: int) -> bool:
        """Whether autograd saves anything for the backward pass of an op: of ops, weights or inputs."""
        graph = self.graph
        is_free = graph.flops[op] == 0 and graph.bytes_accessed[op] == 0
        saves_nothing = is_free or self.kind[op] in _SAVES_NOTHING - SAVES_RESULTS.keys()
        sources = self._sources(op)
        if saves_nothing or not (sources or self.flow.weights[op]):
            return False
        saved = self.operands.needed if self.operands.known(op) else self._saved
        return self.kind[op] not in {"mul", "div"} or bool(self.weights[op] or saved(op, sources))

    def _read_again(self, op: int, towards: list[int]) -> list[int]:
        """What is saved for gradients of an op towards some others, or computed again in place of that."""
        part = self.checkpoint.get(op)
        inside = () if part is None else part.ops
        return [self.again.get(saved, saved) if saved in inside else saved for saved in self._saved(op, towards)]

    # ---- optimizer ---------------------------------------------------------------------------------------

    def _add_optimizer(self) -> None:
        """An update at each weight's first user that has its gradient, a refresh at the others."""
        owner: dict[int, int] = {}  # weight -> op
        order = self.graph.topological_order.tolist()
        for op in order:
            if op in self.grad_weight:
                for weight in self.flow.weights[op]:
                    owner.setdefault(weight, op)
        users = np.bincount(self.graph.weight_uses[:, 1], minlength=len(self.graph.weights))
        update: dict[int, int] = {}
        for op in order:
            if owned := [weight for weight in self.weights[op] if owner.get(weight) == op]:
                update[op] = self._add_update(op, owned, [weight for weight in owned if users[weight] > 1])
        for op in order:
            if awaited := [update[owner[weight]] for weight in self.weights[op] if owner.get(weight, op) != op]:
                self._add("refresh", op, Phase.REFRESH, (0.0, 0.0, 0.0), awaited)

    def _add_update(self, op: int, owned: list[int], shared: list[int]) -> int:
        """Written in place: only what is sent to other users is an output, in addition to the memory set aside for it.

        Of a table with a sparse gradient, only the rows that were read are written and sent.
        """
        size = float(self.graph.weights[owned].sum())
        size = min(self.sparse_bytes.get(self.grad_weight[op], size), size)
        costs = 0.0, UPDATE_TRAFFIC * size, min(float(self.graph.weights[shared].sum()), size)
        return self._add("update", op, Phase.UPDATE, costs, [self.grad_weight[op]])


def _with_loss(forward: OpGraph) -> OpGraph:
    """Append the op that turns all outputs into one number."""
    sinks = GradientFlow.of(forward).loss_reads
    if len(sinks) == 0:
        remedy = "capture its forward pass alone, with --no-training (in Python, training=False)"
        raise InputError(f"graph {forward.name!r} has no weight to train; {remedy}")
    costs = (0.0, float(forward.output_bytes[sinks].sum()), _LOSS_BYTES)
    edges = [(sink, len(forward)) for sink in sinks]
    return _appended(forward, [("loss", "loss", costs, Phase.FORWARD, -1)], edges)


def _appended(graph: OpGraph, added: list[Added], edges: list[Pair], orders: Sequence[Pair] = ()) -> OpGraph:
    """The graph with further ops, which are in no group and not measured, and edges; `orders` carry nothing."""
    is_order = np.arange(len(edges) + len(orders)) >= len(edges)
    names, kinds, costs, phase, mirror = zip(*added, strict=True)
    flops, bytes_accessed, output_bytes = np.array(costs).reshape(-1, 3).T
    return replace(
        graph,
        names=(*graph.names, *names),
        kinds=(*graph.kinds, *kinds),
        flops=np.append(graph.flops, flops),
        bytes_accessed=np.append(graph.bytes_accessed, bytes_accessed),
        output_bytes=np.append(graph.output_bytes, output_bytes),
        edges=np.concatenate([graph.edges, np.array([*edges, *orders], np.int64).reshape(-1, 2)]),
        control=np.append(graph.control, is_order),
        phase=np.append(graph.phase, phase),
        mirror=np.append(graph.mirror, mirror),
        group=np.append(graph.group, np.full(len(names), -1)),
        measured_seconds=np.append(graph.measured_seconds, np.full(len(names), np.nan)),
        calls=(*graph.calls, *[None] * len(names)) if graph.calls else (),
        precisions=appended_precisions(graph.precisions, mirror, flops),
        described=(*graph.described, *[None] * len(names)) if graph.described else (),
        signatures=graph.signatures.extended(len(names)) if graph.signatures else None,
    )


def _lists(pairs: Iterable[Iterable[int]], ops: int) -> list[list[int]]:
    """(ops,) the distinct second members of the pairs, by their first."""
    lists: list[dict[int, None]] = [{} for _ in range(ops)]
    for key, value in pairs:
        lists[key][value] = None
    return [list(distinct) for distinct in lists]
