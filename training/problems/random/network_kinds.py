"""Kinds of graphs that neural networks have: recurrent nets unrolled, residual blocks, attention.

Each function makes a shape of `nodes` nodes at most, half as many at least; of eight or more.
"""

import numpy as np

from training.problems.random.shape import Shape, ShapeDraft

MOST_READ = 8  # blocks that a block reads, where it reads several


def recurrent(rng: np.random.Generator, nodes: int) -> Shape:
    """Layers by time steps: each cell reads the layer below and the step before; cells of a layer share weights.

    A cell is a chain of one to four nodes; an embedding may be below and a classifier above each step.
    """
    has_first, has_last = (rng.random(2) < 0.5).tolist()
    while True:
        layers, cell = int(rng.integers(1, 9)), int(rng.integers(1, 5))
        if 2 * (step := layers * cell + has_first + has_last) <= nodes:
            break
    draft, by_layer = ShapeDraft(), rng.random() < 0.5
    tops = list[int | None]([None]) * (nodes // step)
    if has_first:
        tops = [draft.add(role=0, weight="first") for _ in tops]
    tips: dict[int, int] = {}  # of the time step before, by layer

    def add_cell(layer: int, time: int) -> None:
        read = [each for each in (tops[time], tips.get(layer)) if each is not None]
        for part in range(cell):
            read = [draft.add(read, role=1 + part, weight=layer if part == 0 else None)]
        tips[layer] = read[0]
        tops[time] = read[0]

    if by_layer:
        for layer in range(layers):
            for time in range(len(tops)):
                add_cell(layer, time)
    else:
        for time in range(len(tops)):
            for layer in range(layers):
                add_cell(layer, time)
    if has_last:
        for top in tops:
            assert top is not None
            draft.add([top], role=5, weight="last")
    return draft.shape(nodes)


def residual(rng: np.random.Generator, nodes: int) -> Shape:
    """Blocks of parallel branches whose ends are joined, each block also reading one or some blocks before it.

    The branches are alike in all blocks, as in Inception or ResNeXt; the join of a block with a skip reads its input.
    """
    lengths = rng.integers(1, 5, rng.integers(1, 5)).tolist()
    has_skip, is_dense = (rng.random(2) < (0.7, 0.2)).tolist()
    draft = ShapeDraft()
    tips = [draft.add(role=0, weight="stem")]
    while len(draft) < nodes:
        read = tips[-MOST_READ:] if is_dense else tips[-1:]
        ends = []
        for branch, length in enumerate(lengths):
            end = read
            for step in range(length):
                end = [draft.add(end, role=1 + 4 * branch + step, weight=len(draft))]
            ends += end
        tips.append(draft.add([*ends, *(tips[-1:] if has_skip else [])], role=17))
    return draft.shape(nodes)


def attention(rng: np.random.Generator, nodes: int) -> Shape:
    """Blocks of attention in some heads and of a perceptron, which may be several experts, with skips around both."""
    heads, experts = int(rng.integers(1, 5)), int(rng.choice([1, 1, 2, 4, 8]))
    draft = ShapeDraft()
    tip = draft.add(role=0, weight="embedding")
    while len(draft) < nodes:
        start = draft.add([tip], role=1)
        contexts = []
        for _ in range(heads):
            query, key, value = (draft.add([start], role=2, weight=len(draft)) for _ in range(3))
            scores = draft.add([draft.add([query, key], role=3)], role=4)
            contexts.append(draft.add([scores, value], role=3))
        tip = draft.add([tip, draft.add(contexts, role=5, weight=len(draft))], role=6)
        start = draft.add([tip], role=1)
        router = [draft.add([start], role=7, weight=len(draft))] if experts > 1 else []
        ends = []
        for _ in range(experts):
            wide = draft.add([draft.add([start, *router], role=8, weight=len(draft))], role=9)
            ends.append(draft.add([wide], role=10, weight=len(draft)))
        tip = draft.add([tip, *ends], role=6)
    return draft.shape(nodes)
