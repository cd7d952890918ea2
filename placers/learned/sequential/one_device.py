"""The first decision of a policy that may make it: everything on one device, or unit by unit.

Where transfers cost more than devices gain, one device is best, and hundreds of decisions must agree to say so. As one
decision it has one probability, is imitated and reinforced as any other, and takes no roll-out. The device is no
choice: it is the fastest that holds everything.

While a policy is trained, in `SHARE_TRIED` of the problems that it meets the first sample has everything there and all
others are placed unit by unit, whatever the policy would rather do. Drawn by its own probability, the better of the
two would soon leave nothing to learn the other from. The advantages of a problem's samples sum to 0, so with p the
probability of one device and A the advantage of that sample the gradient of p's logit is

    A * (1 - p)  -  (sum of the others' advantages = -A) * p  =  A

which has the sign of the gradient under p's own draws, p * (1 - p) * A, and does not vanish where p is near 0 or 1. So
nothing would keep the logit from growing without end, until the ratio of two updates' probabilities is no number any
more; it is clipped smoothly, as Bello et al. (2017, appendix A.1) clip theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from graphs.op_graph import Floats, Ints
from placers.learned.policy import Scores
from placers.learned.sequential.decoder_features import Feature
from placers.learned.sequential.layout import RolloutLayout
from placers.learned.sequential.state import FILLED

SHARE_TRIED = 0.5
SELDOM = -2.0  # logit of a new policy's decision for one device: an eighth
LARGEST_LOGIT = 6.0  # of either decision: a probability of 0.25%
SEEN = ("seconds", "even_seconds", "fill", "links", "latencies", "share", "longest_path", "ops_per_unit")
OF_RUNTIME = ("alone", "host", "streams", "thread_per_device")  # after these, of a policy that knows the runtime


@dataclass(frozen=True, eq=False)
class OneDeviceChoice:
    """What was decided."""

    taken: Tensor  # (problems, samples) bool: everything is on one device
    open: Tensor  # (problems,) bool: whether that was a choice

    def cat(self, other: Self) -> Self:
        """The samples of both."""
        return type(self)(torch.cat([self.taken, other.taken], 1), self.open)

    def but_for(self, repaired: Tensor) -> Self:
        """No decision in some problems, (problems,) bool."""
        return type(self)(self.taken & ~repaired[:, None], self.open & ~repaired)


class OneDeviceHead(nn.Module):
    """Rates everything on one device against placing unit by unit, from the mean state of the units and the layout."""

    def __init__(self, hidden: int, *, knows_runtime: bool = False) -> None:
        super().__init__()
        self.knows_runtime = knows_runtime
        self.first = nn.Linear(hidden + len(SEEN) + len(OF_RUNTIME) * knows_runtime, hidden)
        self.out = nn.Linear(hidden, 1)
        nn.init.normal_(self.out.weight, std=0.05)
        nn.init.constant_(self.out.bias, SELDOM)

    def forward(self, states: Tensor, unit_mask: Tensor, layouts: Sequence[RolloutLayout]) -> Tensor:
        """(problems,) the logit of one device, from (problems, units, hidden) states."""
        counted = unit_mask[..., None]
        mean = (states * counted).sum(1) / counted.sum(1).clamp_min(1)
        rows = [_seen(layout) + (_of_runtime(layout) if self.knows_runtime else []) for layout in layouts]
        seen = torch.from_numpy(np.array(rows, np.float32))
        logits: Tensor = self.out(torch.relu(self.first(torch.cat([mean, seen], 1)))).squeeze(-1)
        return LARGEST_LOGIT * torch.tanh(logits / LARGEST_LOGIT)

    def tried(self, layouts: Sequence[RolloutLayout], samples: int, generator: torch.Generator) -> OneDeviceChoice:
        """What is tried in training: in some problems the first of several samples is on one device."""
        open_ = _open(layouts)
        taken = torch.zeros(len(layouts), samples, dtype=torch.bool)
        drawn = torch.rand(len(layouts), generator=generator) < SHARE_TRIED
        if samples > 1:
            taken[:, 0] = drawn & open_
        return OneDeviceChoice(taken, open_)

    def of_placements(self, layouts: Sequence[RolloutLayout], placements: Sequence[Ints]) -> OneDeviceChoice:
        """The decisions that lead to placements, (units,) each: one device where all units are there."""
        taken = [is_one_device(layout, placement) for layout, placement in zip(layouts, placements, strict=True)]
        return OneDeviceChoice(torch.tensor(taken)[:, None], _open(layouts))

    def with_decision(self, scores: Scores, logits: Tensor, choice: OneDeviceChoice) -> Scores:
        """Scores with one more decision."""
        sure = nn.functional.logsigmoid(logits), nn.functional.logsigmoid(-logits)
        rated = torch.where(choice.taken, sure[0][:, None], sure[1][:, None]) * choice.open[:, None]
        entropy = -(sure[0].exp() * sure[0] + sure[1].exp() * sure[1]) * choice.open
        return Scores(
            torch.cat([scores.log_probability, rated[..., None]], 2),
            torch.cat([scores.entropy, entropy[:, None]], 1),
            torch.cat([scores.mask, choice.open[:, None]], 1),
        )


def one_device(layout: RolloutLayout) -> int:
    """The device that would be done first with everything, of those that may run and, by estimate, hold it; or -1."""
    holds = (layout.limits * FILLED >= layout.live.alone) & layout.allowed.all(axis=0)
    return int(np.where(holds, layout.host.alone, np.inf).argmin()) if holds.any() else -1


def is_one_device(layout: RolloutLayout, placement: Ints) -> bool:
    """Whether a placement, (units,), has everything on that device, or on one that is equal to it."""
    device = one_device(layout)
    return bool(device >= 0 and (placement == placement[0]).all() and layout.same[placement[0]] == layout.same[device])


def with_one_device(layout: RolloutLayout, logit: float, placements: Ints, unit_by_unit: Floats) -> Floats:
    """(placements,) log-probabilities after the first decision, of those that they have unit by unit."""
    if not _open([layout])[0]:
        return unit_by_unit
    alone = np.array([is_one_device(layout, placement) for placement in placements])
    decided: Floats = np.where(alone, -np.logaddexp(0, -logit), -np.logaddexp(0, logit) + unit_by_unit)
    return decided


def _open(layouts: Sequence[RolloutLayout]) -> Tensor:
    """(problems,) bool: whether there is such a device, and another one."""
    return torch.tensor([one_device(layout) >= 0 and len(layout.limits) > 1 for layout in layouts])


def _of_runtime(layout: RolloutLayout) -> list[float]:
    """(OF_RUNTIME,) of a problem: what one device and its threads take as logarithms, and flags.

    A plan on one device is no plan for the thread: it takes no longer for that, as it does for all others.
    """
    host, device = layout.host, max(one_device(layout), 0)
    return [
        float(np.log(max(float(host.alone[device]), 1e-12) / layout.scale)),
        float(np.log1p(10 * host.op.sum() / layout.scale)) / 4,
        float(host.streams),
        float(host.clocked and host.thread.any()),
    ]


def _seen(layout: RolloutLayout) -> list[float]:
    """(SEEN,) of a problem: logarithms, but for shares and flags."""
    device, totals, fastest = max(one_device(layout), 0), layout.totals, float(layout.totals.least_per_byte.min())
    apart = layout.latency[~np.eye(len(layout.limits), dtype=np.bool_)]
    links, latency = len(layout.neighbour) / 2, float(apart.min()) if len(apart) else 0.0
    alone = max(float(totals.alone[device]), 1e-30)
    return [
        np.log(alone / layout.scale) if alone > 1e-30 else 0.0,
        np.log(alone / totals.even) if alone > 1e-30 else 0.0,
        min(layout.live.alone / max(float(layout.limits[device]), 1.0), 2.0),
        np.log1p(10 * layout.linked_bytes.sum() / 2 * fastest / layout.scale),
        np.log1p(10 * links * latency / layout.scale),
        1 / len(layout.limits),
        *totals.known[device, Feature.LONGEST_PATH - Feature.ALONE :],
    ]
