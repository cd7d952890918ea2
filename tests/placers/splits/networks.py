"""Networks as split graphs, built by hand: training steps of an MLP, a wide ResNet and a recurrent network."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod

from graphs.notation.affine import variable
from graphs.notation.gradients import gradient
from graphs.notation.operator import Operator, tensor
from placers.splits.split_graph import UNTIED, SplitGraph, SplitOp, SplitTensor

FLOPS_PER_SECOND = 10e12  # of a device
STATE = 2  # a weight and its gradient
PRODUCT = (-1,)  # as `needs`: the gradient of each read is an op, which needs all other reads
SUM = (-2,)  # the gradient of the result is that of each read


@dataclass
class Step:
    """A training step that is built op by op; then the gradients of all that was built."""

    coarsened: bool = False  # an op divides the same index as its gradients
    tensors: list[SplitTensor] = field(default_factory=list)
    ops: list[SplitOp] = field(default_factory=list)
    needs: list[tuple[int, ...]] = field(default_factory=list)  # of forward ops
    groups: dict[object, int] = field(default_factory=dict)

    def tensor(self, name: str, *shape: int, stored: bool = False, tied: object = None) -> int:
        held = 4.0 * STATE * prod(shape) if stored else 0.0
        self.tensors.append(SplitTensor(name, shape, 4.0, stored, held, self.group(tied)))
        return len(self.tensors) - 1

    def group(self, tied: object) -> int:
        return UNTIED if tied is None else self.groups.setdefault(tied, len(self.groups))

    def op(self, name: str, operator: Operator, reads: Sequence[int], writes: Sequence[int], tied: object) -> None:
        seconds = 2 * operator.points / FLOPS_PER_SECOND
        self.ops.append(SplitOp(name, operator, tuple(reads), tuple(writes), seconds, tied=self.group(tied)))

    def forward(
        self, name: str, operator: Operator, *reads: int, needs: Sequence[int] = (), tied: object = None
    ) -> list[int]:
        """The tensors that it makes. Its gradients need these, or what it reads, by `needs`: results first."""
        made = [
            self.tensor(f"{name}.{place}", *access.shape, tied=None if tied is None else (tied, place))
            for place, access in enumerate(operator.writes)
        ]
        self.op(name, operator, reads, made, tied if tied is not None else name if self.coarsened else None)
        self.needs.append(tuple(needs))
        return made

    def backward(self, last: int, without: Sequence[int] = ()) -> SplitGraph:
        """The gradients of all reads but `without`; a weight's are written into it, of others several are added up."""
        loss = self.tensor("loss.grad", *self.tensors[last].shape, stored=True)
        found: dict[int, list[int]] = {last: [loss]}  # of each tensor, the gradients that its readers make
        for number in reversed(range(len(self.needs))):
            op, needs = self.ops[number], self.needs[number]
            results = [self.summed(found, result) for result in op.writes]
            places = [place for place, read in enumerate(op.reads) if read not in without]
            if max(results) < 0 or not places:
                continue  # nothing makes use of it, or it of nothing that is learned
            if needs == SUM:
                for place in places:
                    found.setdefault(op.reads[place], []).append(results[0])
                continue
            for several in [[place] for place in places] if needs == PRODUCT else [places]:
                needed = {len(results) + other for other in range(len(op.reads)) if other not in several}
                needed = needed if needs == PRODUCT else set(needs)
                others = [other if i in needed else -1 for i, other in enumerate((*op.writes, *op.reads))]
                who = None if op.tied == UNTIED else (op.tied, "grad", several[0])
                into = [self.gradient_tensor(found, op, place) for place in several]
                group = op.name if self.coarsened and op.tied != UNTIED else who
                operator = gradient_of(op.operator, tuple(several))
                self.op(f"{op.name}.grad{several[0]}", operator, [*results, *others], into, group)
        return SplitGraph("step", tuple(self.tensors), tuple(self.ops))

    def gradient_tensor(self, found: dict[int, list[int]], op: SplitOp, place: int) -> int:
        """What the gradient of a read is written into: a weight itself, or a tensor."""
        read = op.reads[place]
        if self.tensors[read].stored:
            return read
        who = None if op.tied == UNTIED else (op.tied, "grad", place)
        made = self.tensor(f"{op.name}.grad{place}", *self.tensors[read].shape, tied=who)
        found.setdefault(read, []).append(made)
        return made

    def summed(self, found: dict[int, list[int]], result: int) -> int:
        """The gradient of a tensor, all of its users' added up; -1 if there is none."""
        parts, of = found.get(result, []), self.tensors[result]
        if len(parts) < 2:
            return parts[0] if parts else -1
        tied = None if of.tied == UNTIED else (of.tied, "sum")
        made = self.tensor(f"{of.name}.sum", *of.shape, tied=tied)
        self.op(f"{of.name}.sum", pointwise(of.shape, len(parts)), parts, [made], tied)
        return made


@cache
def gradient_of(operator: Operator, places: tuple[int, ...]) -> Operator:
    return gradient(replace(operator, reducer="sum"), places)


@cache
def pointwise(shape: tuple[int, ...], reads: int = 1) -> Operator:
    names = [f"d{i}" for i in range(len(shape))]
    access = tensor(shape, *names)
    return Operator(dict(zip(names, shape, strict=True)), (access,) * reads, (access,))


@cache
def product(rows: int, inner: int, columns: int) -> Operator:
    """y[n, m] = sum over k of x[n, k] w[m, k]."""
    sizes = {"n": rows, "m": columns, "k": inner}
    reads = tensor((rows, inner), "n", "k"), tensor((columns, inner), "m", "k")
    return Operator(sizes, reads, (tensor((rows, columns), "n", "m"),))


@cache
def convolution(batch: int, inputs: int, outputs: int, size: int, window: int, stride: int) -> Operator:
    out, padding = -(-size // stride), (window - 1) // 2
    sizes = {"n": batch, "co": outputs, "ci": inputs, "h": out, "w": out, "kh": window, "kw": window}
    rows, columns = (variable(v) * stride + variable(f"k{v}") - padding for v in "hw")
    image = tensor((batch, inputs, size, size), "n", "ci", rows, columns, fill=0.0)
    weight = tensor((outputs, inputs, window, window), "co", "ci", "kh", "kw")
    made = tensor((batch, outputs, out, out), "n", "co", "h", "w")
    return Operator(sizes, (image, weight), (made,), opaque=frozenset({"kh", "kw"}))


@cache
def pooling(batch: int, channels: int, size: int, window: int, stride: int) -> Operator:
    out, padding = -(-size // stride), (window - 1) // 2
    sizes = {"n": batch, "c": channels, "h": out, "w": out, "kh": window, "kw": window}
    rows, columns = (variable(v) * stride + variable(f"k{v}") - padding for v in "hw")
    image = tensor((batch, channels, size, size), "n", "c", rows, columns, fill=0.0)
    made = tensor((batch, channels, out, out), "n", "c", "h", "w")
    return Operator(sizes, (image,), (made,), "max", opaque=frozenset({"kh", "kw"}))


@cache
def average(batch: int, channels: int, size: int) -> Operator:
    sizes = {"n": batch, "c": channels, "h": size, "w": size}
    return Operator(
        sizes, (tensor((batch, channels, size, size), "n", "c", "h", "w"),), (tensor((batch, channels), "n", "c"),)
    )


def mlp(layers: int = 5, width: int = 8192, batch: int = 256, *, coarsened: bool = False) -> SplitGraph:
    """Products of matrices, one after the other."""
    step = Step(coarsened)
    data = last = step.tensor("data", batch, width, stored=True)
    for layer in range(layers):
        weight = step.tensor(f"w{layer}", width, width, stored=True)
        [last] = step.forward(f"fc{layer}", product(batch, width, width), last, weight, needs=PRODUCT)
    return step.backward(last, [data])


def wide_resnet(
    blocks: Sequence[int] = (3, 8, 36, 3), widening: int = 10, batch: int = 8, *, coarsened: bool = False
) -> SplitGraph:
    """WResNet-152-10, without batch norm, as Tofu's authors ran it on eight devices."""
    step = Step(coarsened)
    data = step.tensor("data", batch, 3, 224, 224, stored=True)

    def conv(name: str, image: int, outputs: int, window: int, stride: int) -> int:
        _, inputs, size, _ = step.tensors[image].shape
        weight = step.tensor(f"{name}.weight", outputs, inputs, window, window, stored=True)
        operator = convolution(batch, inputs, outputs, size, window, stride)
        return step.forward(name, operator, image, weight, needs=PRODUCT)[0]

    def relu(name: str, image: int) -> int:
        return step.forward(name, pointwise(step.tensors[image].shape), image, needs=(0,))[0]

    channels = 64 * widening
    last = relu("stem.relu", conv("stem", data, channels, 7, 2))
    [last] = step.forward("stem.pool", pooling(batch, channels, 112, 3, 2), last, needs=(0, 1))
    for stage, count in enumerate(blocks):
        for block in range(count):
            name, inner, stride = f"{stage}.{block}", channels * 2**stage, 2 if stage and not block else 1
            short = conv(f"{name}.short", last, 4 * inner, 1, stride) if not block else last
            for place, (outputs, window, by) in enumerate(((inner, 1, 1), (inner, 3, stride), (4 * inner, 1, 1))):
                last = conv(f"{name}.conv{place}", last, outputs, window, by)
                last = relu(f"{name}.relu{place}", last) if place < 2 else last
            [last] = step.forward(f"{name}.add", pointwise(step.tensors[last].shape, 2), last, short, needs=SUM)
            last = relu(f"{name}.relu2", last)
    _, channels, size, _ = step.tensors[last].shape
    [last] = step.forward("pool", average(batch, channels, size), last)
    weight = step.tensor("fc.weight", 1000, channels, stored=True)
    [last] = step.forward("fc", product(batch, channels, 1000), last, weight, needs=PRODUCT)
    return step.backward(last, [data])


@cache
def gates(batch: int, inputs: int, hidden: int) -> Operator:
    """Four gates of an LSTM: y[b, g, o] = sum over i of x[b, i] w[g, o, i]."""
    sizes = {"b": batch, "o": hidden, "i": inputs, "g": 4}
    reads = tensor((batch, inputs), "b", "i"), tensor((4, hidden, inputs), "g", "o", "i")
    return Operator(sizes, reads, (tensor((batch, 4, hidden), "b", "g", "o"),), opaque=frozenset("g"))


@cache
def cell(batch: int, hidden: int) -> Operator:
    """Gates from the input and from the state before, and the memory before -> state and memory."""
    gate, state = tensor((batch, 4, hidden), "b", "g", "o"), tensor((batch, hidden), "b", "o")
    return Operator({"b": batch, "o": hidden, "g": 4}, (gate, gate, state), (state, state), opaque=frozenset("g"))


def lstm(layers: int = 10, steps: int = 20, hidden: int = 4096, batch: int = 32, *, tied: bool = True) -> SplitGraph:
    """RNN-10, as Tofu's authors ran it: layers of LSTM cells, unrolled, whose steps are tied position by position."""
    step = Step()

    def who(layer: int, name: str, at: int) -> object:
        return (layer, name) if tied else None

    data = [step.tensor(f"data{at}", batch, hidden, stored=True, tied="data" if tied else None) for at in range(steps)]
    states = data
    start = list[int]()
    for layer in range(layers):
        by_input, by_state = (step.tensor(f"{layer}.{w}", 4, hidden, hidden, stored=True) for w in ("wx", "wh"))
        state, memory = (step.tensor(f"{layer}.{s}", batch, hidden, stored=True) for s in ("h0", "c0"))
        start += [state, memory]
        made = list[int]()
        for at, below in enumerate(states):
            name = f"{layer}.{at}"
            [x] = step.forward(
                f"{name}.x", gates(batch, hidden, hidden), below, by_input, needs=PRODUCT, tied=who(layer, "x", at)
            )
            [h] = step.forward(
                f"{name}.h", gates(batch, hidden, hidden), state, by_state, needs=PRODUCT, tied=who(layer, "h", at)
            )
            state, memory = step.forward(
                f"{name}.cell", cell(batch, hidden), x, h, memory, needs=(0, 1, 2, 3, 4), tied=who(layer, "cell", at)
            )
            made.append(state)
        states = made
    return step.backward(states[-1], [*data, *start])
