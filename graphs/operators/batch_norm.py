"""Batch normalisation: y[n, c, h, w] = (x[n, c, h, w] - mean[c]) / deviation[c] weight[c] + bias[c].

In training, mean and variance of a channel are statistics over all else: parts of a batch add them up while they run,
as torch.nn.SyncBatchNorm does. (What data-parallel training does without it, statistics of each part alone, is another
operation.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphs.notation.operator import Operator, Statistic, tensor
from graphs.notation.signatures import Signature
from graphs.operators import Description
from graphs.operators._indices import alike, all_of, argument, is_read, sizes

if TYPE_CHECKING:
    from torch import Tensor

    from graphs.notation.shard import Shard

KINDS = ("aten._native_batch_norm_legit_functional", "aten.native_batch_norm", "aten._native_batch_norm_legit")
EXAMPLES = (
    "aten._native_batch_norm_legit_functional(x(4, 6, 3, 3), x(6), x(6), c(6), c(6), True, 0.1, 1e-5)",
    "aten._native_batch_norm_legit_functional(x(4, 6), None, None, c(6), c(6), True, 0.1, 1e-5)",
    "aten._native_batch_norm_legit_functional(x(4, 6, 3, 3), x(6), x(6), c(6), c(6), False, 0.1, 1e-5)",
    "aten.native_batch_norm(x(4, 6, 3, 3), x(6), x(6), c(6), c(6), False, 0.1, 1e-5)",
    "aten._native_batch_norm_legit(x(4, 6, 3, 3), x(6), x(6), c(6), c(6), False, 0.1, 1e-5)",
)

_TRAINING, _EPSILON = 5, 7  # positions among the arguments


def build() -> Description:
    """Of batch norm, in training and after it."""
    return Description(_operator, together=_together)


def _operator(signature: Signature) -> Operator | None:
    shape = signature.shape
    if len(signature.arguments) != 8:  # without running statistics, which is of another form
        return None
    reads = (all_of(shape), *(tensor(read.shape, "d1") for read in signature.reads[1:]))
    statistics = (Statistic(("d1",), 2, 2),) if argument(signature, _TRAINING) else ()
    return Operator(sizes(shape), reads, (all_of(shape),), statistics=statistics)


def _together(shards: Sequence[Shard]) -> list[Tensor]:
    made: list[Tensor | None] = [None] * len(shards)
    for members in alike(shards, ["d1"]):
        first = shards[members[0]]
        images: list[Any] = [shards[i].tensors[0] for i in members]
        around = [i for i in range(images[0].dim()) if i != 1]
        arguments = dict(enumerate(first.signature.arguments))
        given = {
            i: [shards[m].tensors[arguments[i]["read"]] for m in members] for i in (1, 2, 3, 4) if is_read(arguments[i])
        }
        if arguments[_TRAINING]:
            count = sum(image.numel() // image.shape[1] for image in images)
            mean = sum(image.sum(around) for image in images) / count
            centred = [image - _channels(mean, image) for image in images]
            variance = sum((each * each).sum(around) for each in centred) / count
            means, variances = [mean] * len(members), [variance] * len(members)
        else:
            means, variances = given[3], given[4]
        for k, i in enumerate(members):
            image = images[k]
            y = (image - _channels(means[k], image)) * _channels((variances[k] + arguments[_EPSILON]).rsqrt(), image)
            y = y * _channels(given[1][k], image) if 1 in given else y
            made[i] = y + _channels(given[2][k], image) if 2 in given else y
    return [each for each in made if each is not None]


def _channels(values: Tensor, image: Tensor) -> Tensor:
    """One value per channel, in the dimensions of an image."""
    return values.reshape(1, -1, *[1] * (image.dim() - 2))
