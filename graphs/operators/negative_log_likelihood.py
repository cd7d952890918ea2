"""The negative log likelihood: y = - sum over n and c of (target[n] = c) x[n, c], divided by how many targets count.

That number is a statistic. Of images the sum is over their positions as well: x[n, c, i, j], target[n, i, j].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphs.notation.operator import Operator, Statistic, tensor
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import alike, argument, is_read, names

if TYPE_CHECKING:
    from torch import Tensor

    from graphs.notation.shard import Shard

KINDS = ("aten.nll_loss_forward", "aten.nll_loss2d_forward")
EXAMPLES = (
    "aten.nll_loss_forward(x(6, 8), i(8, 6), None, 1, 3)",
    "aten.nll_loss_forward(x(6, 8), i(8, 6), None, 2, -100)",
    "aten.nll_loss2d_forward(x(6, 8, 2, 3), i(8, 6, 2, 3), None, 1, 3)",
    "aten.nll_loss2d_forward(x(6, 8, 2, 3), i(8, 6, 2, 3), None, 2, -100)",
)

_MEAN, _SUM = 1, 2


def build() -> Description:
    """Of both `nll_loss_forward`, summed or averaged, with all classes of one weight."""
    return Description(_operator, together=_together)


def _operator(signature: Signature) -> Operator | None:
    scores, targets = (read.shape for read in signature.reads[:2])
    if len(scores) not in (2, 4) or is_read(argument(signature, 2)) or argument(signature, 3) not in (_MEAN, _SUM):
        return None
    positions = names(scores)[2:]
    return Operator(
        {"n": scores[0], "c": scores[1]} | dict(zip(positions, scores[2:], strict=True)),
        (tensor(scores, "n", "c", *positions), tensor(targets, "n", *positions)),
        (tensor(()),),
        statistics=(Statistic((), 1, 0),) if argument(signature, 3) == _MEAN else (),
        ordered=frozenset("c"),
    )


def _together(shards: Sequence[Shard]) -> list[Tensor]:
    made: dict[int, Tensor] = {}
    for members in alike(shards, ["c"]):
        counted = [shards[i].tensors[1].ne(argument(shards[i].signature, 4, -100)) for i in members]
        count = sum(int(each.sum()) for each in counted)
        for i, counts in zip(members, counted, strict=True):
            total = _total(shards[i], counts)
            made[i] = total / count if argument(shards[i].signature, 3) == _MEAN else total
    return [made[i] for i in range(len(shards))]


def _total(shard: Shard, counts: Tensor) -> Tensor:
    """Minus the scores of the targets that count and are of the shard's classes."""
    scores, targets = shard.tensors
    classes = shard.space["c"]
    inside = (targets >= classes.low) & (targets <= classes.high) & counts
    local = (targets - classes.low).clamp(0, classes.size - 1).unsqueeze(1)
    return -(scores.gather(1, local).squeeze(1) * inside).sum()
