"""LabelSchedule: when the label of a problem is to be searched again."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass

import numpy as np
import torch
from torch import Tensor

from training.learning.trainer import below


@dataclass
class LabelSchedule:
    """How often a problem was met and searched, and what its label was worth after the last search."""

    met: int = 0  # updates, since the last search
    wait: int = 0  # of these until the next search
    searches: int = 0
    value: float = np.inf  # seconds of the label when it was last searched

    def is_due(self) -> bool:
        """Whether the label is to be searched now."""
        return self.searches == 0 or self.met >= self.wait

    def searched(self, value: float, again: int, longest: int, equal: float) -> None:
        """Note that a search is over, and what the label is worth: seconds, which are alike within a share `equal`.

        The next search is due after `again` updates or, where nothing has become better since the search before,
        after twice as many as the last time, but `longest` at most.
        """
        in_vain = value >= self.value * (1 - equal)
        self.wait = min(max(2 * self.wait, again), longest) if in_vain else again
        self.met, self.searches, self.value = 0, self.searches + 1, value


def written_schedules(schedules: Mapping[int, LabelSchedule]) -> dict[str, Tensor]:
    """Tensors "label.NUMBER", (4,), of each problem that was met."""
    return {
        f"label.{number}": torch.tensor(astuple(each), dtype=torch.float64)
        for number, each in schedules.items()
        if each.met or each.searches
    }


def read_schedules(tensors: Mapping[str, Tensor]) -> dict[int, LabelSchedule]:
    """By number, what `written_schedules` wrote."""
    found = {int(number): value.tolist() for number, value in below("label.", tensors).items()}
    return {
        number: LabelSchedule(int(met), int(wait), int(searches), value)
        for number, (met, wait, searches, value) in found.items()
    }
