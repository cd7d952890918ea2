"""Longest path: the op with the longest path behind it runs first, its seconds averaged over devices.

The rule of list scheduling (Hu 1961; "critical path" and HLFET in Adam, Chandy and Dickson, CACM 1974), without
transfers. It runs the gradients that other gradients wait for before those of weights, as zero-bubble pipelines do
(Qi et al., ICLR 2024): a runner that issues ops by itself can enforce it, PyTorch's autograd alone does not.
"""

from dataclasses import dataclass

from graphs.op_graph import Floats
from graphs.op_graph.paths import longest_remaining
from graphs.problem import Problem


@dataclass(frozen=True)
class LongestPath:
    """The seconds from the start of an op to the end of the step, if nothing had to wait for a device or a link."""

    def priorities(self, problem: Problem, op_seconds: Floats) -> Floats:
        """(ops,) minus the seconds of the longest path that begins with each op."""
        return -longest_remaining(problem.graph, op_seconds.mean(axis=1))


build = LongestPath
