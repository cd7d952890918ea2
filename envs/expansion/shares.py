"""Shares: what the ops of a problem cost for a part of its batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from envs.costs.costs import costs_of
from graphs.op_graph import Phase
from graphs.problem import Problem


def shared(problem: Problem, share: float) -> Problem:
    """The problem of computing a share of the batch, with the same ops; op_seconds are given.

    Updates of weights do not depend on the batch. The whole batch gives the same numbers, to the bit.
    """
    graph, seconds = problem.graph, costs_of(problem).op_seconds
    factor = np.where(graph.phase >= Phase.UPDATE, 1.0, share)
    part = replace(
        graph,
        flops=graph.flops * factor,
        bytes_accessed=graph.bytes_accessed * factor,
        output_bytes=graph.output_bytes * factor,
        transfer_bytes=graph.transfer_bytes * factor if len(graph.transfer_bytes) else graph.transfer_bytes,
    )
    return replace(problem, graph=part, op_seconds=seconds * factor[:, None])
