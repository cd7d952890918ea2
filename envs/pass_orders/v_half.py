"""V-Half: two stages on each device in the shape of a V, in about half the memory of 1F1B (Qi et al., 2024).

A device holds the activations of at most P / 2 + 1 micro-batches, rounded down; if forward passes, input gradients and
weight gradients take equally long, devices idle about half as long as with 1F1B.
"""

from dataclasses import dataclass

from envs.pass_orders._v_shape import VShape


@dataclass(frozen=True)
class VHalf(VShape):
    """The shortest schedule in so much memory."""

    def published(self, ranks: int) -> int:
        """(P + 2) / 2, rounded down: of the paper's own schedules."""
        return (ranks + 2) // 2


build = VHalf
