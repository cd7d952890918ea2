"""SequentialShape: the knobs of the sequential policy's network."""

from typing import Literal

import msgspec

from placers.learned.shapes import Size


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
