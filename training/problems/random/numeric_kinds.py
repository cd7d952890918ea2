"""Kinds of graphs of numerical programs: products of matrices in tiles, butterflies, eliminations.

Each function makes a shape of `nodes` nodes at most, half as many at least; of eight or more.
"""

import math
from itertools import pairwise

import numpy as np

from training.problems.random.shape import Shape, ShapeDraft

LOAD, PRODUCT, SUM, AFTER = range(4)  # roles of the nodes of tiled products


def tiles(rng: np.random.Generator, nodes: int) -> Shape:
    """Products of matrices in tiles, Y[i, j] = sum over k of X[i, k] W[k, j], each reading the one before.

    The tiles of X and W may be loaded by nodes; sums are chains, trees, or single nodes; an element-wise node may
    follow each sum. All rows i are alike, and their products share the weights W[k, j].
    """
    most = max(2, math.isqrt(nodes))
    while True:
        widths = rng.integers(1, most + 1, rng.integers(2, 5))  # tiles of X's columns, and of each product's
        widths[0] = max(widths[0], 2)  # so that something is added up
        form, loads_x, loads_w, is_followed = rng.integers(3), *(rng.random(3) < 0.5)
        sums = [0 if q == 1 else 1 if form == 2 else q - 1 for q in widths[:-1]]
        made = widths[1:] * (widths[:-1] + sums + is_followed)
        row, fixed = int(made.sum() + loads_x * widths[0]), int(loads_w * (widths[1:] * widths[:-1]).sum())
        if fixed + row <= nodes:
            break
    rows, draft = (nodes - fixed) // row, ShapeDraft()
    read: dict[tuple[int, int, int], int] = {}  # the node that loads each tile of W
    if loads_w:
        for layer, (q, r) in enumerate(pairwise(widths.tolist())):
            read |= {(layer, k, j): draft.add(role=LOAD, weight=(layer, k, j)) for k in range(q) for j in range(r)}
    for _ in range(rows):
        x: list[int | None] = [draft.add(role=LOAD) if loads_x else None for _ in range(widths[0])]
        for layer, r in enumerate(widths[1:].tolist()):
            y: list[int | None] = []
            for j in range(r):
                products = []
                for k, tile in enumerate(x):
                    sources = [each for each in (tile, read.get((layer, k, j))) if each is not None]
                    products.append(draft.add(sources, role=PRODUCT, weight=None if loads_w else (layer, k, j)))
                total = _added(draft, products, int(form))
                y.append(draft.add([total], role=AFTER) if is_followed else total)
            x = y
    return draft.shape(nodes)


def butterfly(rng: np.random.Generator, nodes: int) -> Shape:
    """Stages of as many nodes, each reading its place and that with another bit, as in a Fourier transform."""
    bits = int(rng.integers(1, min(6, int(math.log2(nodes)) - 1) + 1))
    width, draft = 2**bits, ShapeDraft()
    for stage in range(nodes // width):
        for place in range(width):
            before = (stage - 1) * width
            read = [before + place, before + (place ^ 1 << (stage - 1) % bits)] if stage else []
            draft.add(read, role=min(stage, 1), weight=len(draft))
    return draft.shape(nodes)


def elimination(rng: np.random.Generator, nodes: int) -> Shape:
    """A Cholesky factorisation in tiles: factor a diagonal tile, solve those below it, update the rest; repeat.

    Of larger matrices these are the first steps.
    """
    size = 2
    while size * (size + 1) * (size + 2) // 6 < nodes:
        size += 1
    size += int(rng.integers(3))
    draft, latest = ShapeDraft(), dict[tuple[int, int], int]()
    for k in range(size):
        factor = latest[k, k] = draft.add(_known(latest, (k, k)), role=0, weight=(k, k))
        for i in range(k + 1, size):
            latest[i, k] = draft.add([factor, *_known(latest, (i, k))], role=1, weight=(i, k))
        for i in range(k + 1, size):
            for j in range(k + 1, i + 1):
                read = [latest[i, k], latest[j, k], *_known(latest, (i, j))]
                latest[i, j] = draft.add(read, role=2 if i == j else 3)
    return draft.shape(nodes)


def _known(latest: dict[tuple[int, int], int], tile: tuple[int, int]) -> list[int]:
    """The node that wrote a tile last, if one did."""
    return [latest[tile]] if tile in latest else []


def _added(draft: ShapeDraft, products: list[int], form: int) -> int:
    """The node that holds the sum of some: by a chain (0), by a tree (1), or at once (2)."""
    if form == 2 and len(products) > 1:
        return draft.add(products, role=SUM)
    while len(products) > 1:
        if form == 0:
            products = [draft.add(products[:2], role=SUM), *products[2:]]
        else:
            pairs = [products[i : i + 2] for i in range(0, len(products), 2)]
            products = [draft.add(pair, role=SUM) if len(pair) == 2 else pair[0] for pair in pairs]
    return products[0]
