"""Additive attention, w . tanh(query + key) for every query and key (Bahdanau et al. 2015, equation 6), in small parts.

As one expression it moves (rows, queries, keys, width) numbers through memory several times, forwards and backwards.
Here parts that fit a core's cache are computed, used, and computed again for the gradient. Instead of a hyperbolic
tangent per number it takes an exponential per query and key: tanh(q + k) = 1 - 2 s, s = 1 / (1 + exp(2 q) exp(2 k)).
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

PART = 2**17  # numbers that are computed at a time: half a megabyte
FARTHEST = 40.0  # queries and keys are cut there, since exp(2 * 40) is a number of 32 bits and exp(2 * 45) is not


def additive_scores(queries: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
    """(rows, queries, width), (rows, keys, width), (width,) -> (rows, queries, keys), differentiable once."""
    scores: Tensor = _AdditiveScores.apply(queries, keys, weights)  # type: ignore[no-untyped-call]
    return scores


class _AdditiveScores(torch.autograd.Function):
    """What is kept for the gradient has the size of the queries and the keys."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, weights: Tensor) -> Tensor:
        """The scores."""
        from_queries, from_keys = _exponentials(queries), _exponentials(keys)
        ctx.save_for_backward(from_queries, from_keys, weights)
        scores = queries.new_empty(*queries.shape[:2], keys.shape[1])
        for part in _parts(queries, keys):
            scores[part] = _logistic(from_queries[part], from_keys[part[0]]) @ weights
        return weights.sum() - 2 * scores

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """With s as above, the derivative of tanh(q + k) is 4 s (1 - s)."""
        (gradient,) = gradients
        from_queries, from_keys, weights = ctx.saved_tensors
        of_queries, of_keys = torch.empty_like(from_queries), torch.zeros_like(from_keys)
        of_weights = torch.zeros_like(weights)
        for part in _parts(from_queries, from_keys):
            own = gradient[part]
            s = _logistic(from_queries[part], from_keys[part[0]])
            of_weights.addmv_(s.flatten(0, 2).T, own.reshape(-1))
            slope = s.addcmul_(s, s, value=-1)
            of_queries[part] = (own[:, :, None] @ slope)[:, :, 0]
            of_keys[part[0]] += slope.mul_(own[..., None]).sum(1)
        return of_queries * (4 * weights), of_keys * (4 * weights), gradient.sum() - 2 * of_weights


def _exponentials(values: Tensor) -> Tensor:
    return (2 * values.clamp(-FARTHEST, FARTHEST)).exp()


def _logistic(from_queries: Tensor, from_keys: Tensor) -> Tensor:
    """(rows, queries, keys, width) s, where tanh(q + k) = 1 - 2 s."""
    return (from_queries[:, :, None] * from_keys[:, None]).add_(1).reciprocal_()


def _parts(queries: Tensor, keys: Tensor) -> Iterator[tuple[slice, slice]]:
    """Slices of the rows and of the queries: as many queries of a row as a part holds, then as many rows."""
    rows, count, width = queries.shape
    of_a_query = keys.shape[1] * width
    some = min(count, max(1, PART // of_a_query))
    together = max(1, PART // (of_a_query * some))
    for row in range(0, rows, together):
        for query in range(0, count, some):
            yield slice(row, row + together), slice(query, query + some)
