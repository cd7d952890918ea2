"""SequentialShape: the knobs of the sequential policy's network."""

from typing import Literal

import msgspec
import numpy as np

from graphs.op_graph import Floats
from placers.learned.sequential.state import FILLED
from placers.learned.shapes import Size

FILLS = 0.85, 0.7  # by an estimate of what is held alone
FILLS_OF_LIVE = 0.85, 0.75  # where it counts outputs while they live; 0.8 of the peak or more of 95 in 100
FILLS_OF_RUNTIME = 1.0, 0.8  # the best plans fill more than `FILLED` where memory is tight, and several samples are
# mended; on 88 problems for validation the best of 16 is 2% faster than from 0.9 to 0.7


class SequentialShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a policy is made of; the knobs of a spec, "sequential:width=32"."""

    width: Size = 64  # of the encoder
    sage_layers: Size = 2
    transformer_layers: Size = 1
    heads: Size = 4  # of the Transformer's attention, which divide the width
    hidden: Size = 64  # width of the decoder
    order: Literal["longest_path", "topological", "runtime"] = "longest_path"  # in which units are placed: from the
    # most that is left; or as the runtime's devices run them, with clocks that know its host (`HostThreads`)
    orders: bool = False  # whether it also decides the order in which devices run what is ready
    one_device: bool = False  # whether it may say that everything is best on one device
    live_outputs: bool = False  # whether outputs count while they live, or only what is held during the step
    repairs: bool = False  # whether it chooses, too, which units of a plan are to be placed again

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is no multiple of {self.heads} heads")

    @property
    def fills(self) -> tuple[float, float]:
        """The shares of memory that the greedy placement and the last of several samples may fill, by estimate."""
        if self.order == "runtime":
            return FILLS_OF_RUNTIME
        return FILLS_OF_LIVE if self.live_outputs else FILLS

    def shares(self, count: int) -> Floats:
        """(count,) the share of memory that each of several placements may fill; a single one is not mended."""
        if count == 1 and self.order == "runtime":
            return np.array([FILLED])  # at 1.0 twice as many do not fit, at 0.85 no fewer
        return np.linspace(*self.fills, count)
