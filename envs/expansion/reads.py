"""Reads: which copies of an op read which copies of another, before it is known in what parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from envs.expansion.layout import Layout
from graphs.op_graph import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Reads:
    """Edges of the given graph, or like them, and which of the copies of their two ends each of them joins.

    Copies of an op are consecutive (`Layout`), so the first of them says which ones are meant: an op may have been
    written out twice, to be computed again.
    """

    producer: Ints  # (reads,) op
    consumer: Ints  # (reads,) op
    read: Ints  # (reads,) the first of the producer's copies
    reader: Ints  # (reads,) the first of the consumer's copies
    control: Bools  # (reads,) order only
    message_bytes: Floats  # (reads,) of the whole batch, or NaN where the producer's output is read

    @classmethod
    def of(cls, layout: Layout) -> Reads:
        """The edges of the graph but for those that carry what is summed up first."""
        graph, these = layout.problem.graph, ~layout.is_summed
        producer, consumer = graph.edges[these].T
        message = graph.edge_bytes[these] if len(graph.edge_bytes) else np.full(len(producer), np.nan)
        return cls(
            producer, consumer, layout.first[producer], layout.first[consumer], graph.control[these],
            np.where(graph.control[these], np.nan, message),
        )  # fmt: skip

    @classmethod
    def together(cls, several: Sequence[Reads]) -> Reads:
        """All of them."""
        return cls(*(np.concatenate([getattr(each, key.name) for each in several]) for key in fields(cls)))

    def __len__(self) -> int:
        return len(self.producer)

    def __getitem__(self, which: Ints | Bools) -> Reads:
        return Reads(*(getattr(self, key.name)[which] for key in fields(self)))
