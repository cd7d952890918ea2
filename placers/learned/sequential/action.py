"""What the sequential policy sees of several problems, and what it decides: devices, an order, what to free."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from placers.learned.batch import Batch
from placers.learned.features import Observation
from placers.learned.policy import UnitDevices
from placers.learned.sequential.freeing import Freed
from placers.learned.sequential.layout import RolloutLayout
from placers.learned.sequential.one_device import OneDeviceChoice
from placers.learned.sequential.order_head import Corrections, PartBatch
from placers.learned.sequential.precedence import Precedence
from placers.learned.sequential.trace import Trace

SequentialView = tuple[Observation, RolloutLayout, Precedence | None]


@dataclass(frozen=True, eq=False)
class SequentialBatch:
    """Problems side by side: what the encoder sees, and what the roll-outs run on."""

    encoded: Batch
    layouts: tuple[RolloutLayout, ...]
    parts: PartBatch  # none where the order is not chosen


@dataclass(frozen=True, eq=False)
class SequentialAction(UnitDevices):
    """The devices that were chosen, after an earlier pass or none, and what the decoder saw on the way."""

    earlier: Tensor  # (problems, samples, units) devices in the pass before, -1 in a first pass
    trace: Trace
    corrections: Corrections | None = None  # of the order, if that was decided too
    one_device: OneDeviceChoice | None = None  # the first decision, if the policy makes it
    freed: Freed | None = None  # which units were decided, if only those of a part of a plan were

    def cat(self, other: Self) -> Self:
        """The samples of both, those of the other after these; the other's decide about all units."""
        devices, earlier = (
            torch.cat(both, 1) for both in ((self.devices, other.devices), (self.earlier, other.earlier))
        )
        corrections = None
        if self.corrections is not None and other.corrections is not None:
            corrections = self.corrections.cat(other.corrections)
        one_device = self.one_device and other.one_device and self.one_device.cat(other.one_device)
        freed = self.freed and self.freed.with_more(other.devices.shape[1])
        return type(self)(devices, earlier, self.trace.cat(other.trace), corrections, one_device, freed)
