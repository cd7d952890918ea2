"""Boxes of tensors: which pieces of what others hold make up what is needed, and who adds up partial sums.

held by shard 0   [0 .. 3]                needed by shard 1 of the reader, with a halo   [3 .. 7]
held by shard 1   [4 .. 7]                pieces: 4 .. 7 of shard 1, and 3 of shard 0
"""

from collections.abc import Sequence
from functools import lru_cache

from graphs.notation.ranges import EMPTY, Box, Range, contains, cut, elements, hull, intersection

Wanted = tuple[tuple[int, Box], ...]  # of each reader the number of the part on its device, or -1, and its box

_KEPT = 1 << 16  # layers of a model exchange the same boxes again and again


def empty_like(box: Box) -> Box:
    """A box of as many dimensions, without elements; () holds one element, and has none such."""
    return (EMPTY,) * len(box)


def without(box: Box, hole: Box) -> list[Box]:
    """Disjoint boxes that hold what is in a box and not in the hole."""
    if not elements(intersection(box, hole)):
        return [box]
    left: list[Box] = []
    rest = list(box)
    for number, (mine, taken) in enumerate(zip(box, hole, strict=True)):
        for side in (Range(mine.low, min(mine.high, taken.low - 1)), Range(max(mine.low, taken.high + 1), mine.high)):
            if side.size:
                left.append((*rest[:number], side, *rest[number + 1 :]))
        rest[number] = mine.within(taken)
    return left


@lru_cache(_KEPT)
def cover(needed: Box, held: tuple[Box, ...], order: tuple[int, ...]) -> tuple[tuple[int, Box], ...]:
    """(pieces,) of which held box each is, and the piece; disjoint, together all that is needed of what is held at all.

    Boxes are taken in the order given, by their number in `held`, as much of each as is still missing.
    """
    missing, pieces = [needed] if elements(needed) else [], list[tuple[int, Box]]()
    for number in order:
        if not missing:
            break
        still: list[Box] = []
        for box in missing:
            piece = intersection(box, held[number])
            if elements(piece):
                pieces.append((number, piece))
                still += without(box, piece)
            else:
                still.append(box)
        missing = still
    return tuple(pieces)


@lru_cache(_KEPT)
def hold(boxes: tuple[Box, ...], needed: Box) -> bool:
    """Whether all that is needed is in some of these boxes."""
    pieces = cover(needed, boxes, tuple(range(len(boxes))))
    return sum(elements(piece) for _, piece in pieces) == elements(needed)


@lru_cache(_KEPT)
def volume(boxes: tuple[Box, ...]) -> int:
    """How many elements are in any of these boxes."""
    return sum(elements(piece) for _, piece in cover(hull(boxes), boxes, tuple(range(len(boxes)))))


@lru_cache(_KEPT)
def summands(made: tuple[Box, ...], alike: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Groups of shards whose boxes are parts of the same sums: they overlap, or others do that overlap with both.

    `alike`, (shards,), numbers the sets of shards that make the whole tensor together; such sets are copies of each
    other, and nothing is added up between them.
    """
    groups: list[list[int]] = []
    for shard, box in enumerate(made):
        mine, others = [shard], list[list[int]]()
        for group in groups:
            touches = any(alike[other] == alike[shard] and elements(intersection(box, made[other])) for other in group)
            if touches:
                mine = group + mine
            else:
                others.append(group)
        groups = [*others, mine]
    return tuple(tuple(sorted(group)) for group in sorted(groups, key=min))


@lru_cache(_KEPT)
def adding(parts: tuple[Box, ...], wanted: Wanted) -> tuple[Box, ...]:
    """(parts,) the box that each holder of a part adds up, so that the fewest elements are moved.

    Everybody sends each other's box to him, and readers fetch what they want of the sums. That is a reduce-scatter if
    the boxes are what is wanted there, an all-reduce if all of it is wanted everywhere. Where several divisions move as
    little, the first dimension counts.
    """
    whole = hull(parts)
    candidates = [_cut(whole, dimension, len(parts)) for dimension in range(len(whole))]
    wants = [[box for place, box in wanted if place == number] for number in range(len(parts))]
    candidates.append(tuple(hull(boxes) if boxes else empty_like(whole) for boxes in wants))
    trimmed = _trimmed(parts)
    if trimmed:
        candidates.append(trimmed)
    candidates.append((whole,) * len(parts))
    able = [boxes for boxes in candidates if all(hold(boxes, box) for _, box in wanted)]
    return min(able, key=lambda boxes: moved(parts, boxes, wanted))


def moved(parts: Sequence[Box], sums: Sequence[Box], wanted: Wanted) -> int:
    """How many elements are moved if the holder of each part adds up its box of `sums`."""
    scattered = sum(
        elements(intersection(box, part))
        for number, box in enumerate(sums)
        for other, part in enumerate(parts)
        if other != number
    )
    gathered = sum(
        elements(box) - (elements(intersection(box, sums[place])) if place >= 0 else 0) for place, box in wanted
    )
    return scattered + gathered


def _cut(box: Box, dimension: int, count: int) -> tuple[Box, ...]:
    """Equal parts along a dimension."""
    low = box[dimension].low
    ranges = cut(box[dimension].size, count)
    return tuple((*box[:dimension], Range(low + r.low, low + r.high), *box[dimension + 1 :]) for r in ranges)


def _trimmed(parts: Sequence[Box]) -> tuple[Box, ...]:
    """Boxes that overlap at their borders, cut in the middle of each overlap; none if some are the same."""
    boxes = [list(part) for part in parts]
    for number, one in enumerate(parts):
        for other, two in enumerate(parts):
            both = intersection(one, two)
            if number == other or not elements(both):
                continue
            steps = [dimension for dimension, (a, b) in enumerate(zip(one, two, strict=True)) if a != b]
            if not steps or contains(one, two) or contains(two, one):
                return ()
            for dimension in steps:
                middle = (both[dimension].low + both[dimension].high) // 2
                mine = boxes[number][dimension]
                before = one[dimension].low < two[dimension].low
                boxes[number][dimension] = (
                    Range(mine.low, min(mine.high, middle)) if before else Range(max(mine.low, middle + 1), mine.high)
                )
    return tuple(map(tuple, boxes))
