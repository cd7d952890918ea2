"""V-Min: two stages on each device in the shape of a V, in about a third of the memory of 1F1B (Qi et al., 2024).

A device holds the activations of at most (P + 4) / 3 micro-batches, rounded down, the least for which devices idle no
longer with more micro-batches, if forward passes, input gradients and weight gradients take equally long.
"""

from dataclasses import dataclass

from envs.pass_orders._v_shape import VShape


@dataclass(frozen=True)
class VMin(VShape):
    """The shortest schedule in so much memory."""

    def published(self, ranks: int) -> int:
        """(P + 4) / 3, rounded down: of the paper's own schedules."""
        return (ranks + 4) // 3


build = VMin
