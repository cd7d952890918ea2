"""Batches of problems of like size: a batch is padded to its largest problem, in units and in devices.

problems  40 x 2, 2000 x 4, 60 x 2, 30 x 64      units x devices
batches   40 x 2, 60 x 2 | 30 x 64 | 2000 x 4    gradients of all are added up: what is learned is the same
"""

from collections.abc import Sequence

from placers.learned.policy import View
from training.learning.rollouts import PpoProblem


def like_sizes(problems: Sequence[PpoProblem[View]], most: int) -> list[list[PpoProblem[View]]]:
    """The problems in batches of `most` pairs of a unit and a device with all padding, or of one problem; 0: in one."""
    if not most:
        return [list(problems)]
    found: list[list[PpoProblem[View]]] = []
    units = devices = 0
    for each in sorted(problems, key=_pairs):
        own = each.prepared.problem
        units, devices = max(units, len(own.units)), max(devices, len(own.cluster))
        if found and (len(found[-1]) + 1) * units * devices <= most:
            found[-1].append(each)
        else:
            found.append([each])
            units, devices = len(own.units), len(own.cluster)
    return found


def _pairs(problem: PpoProblem[View]) -> int:
    own = problem.prepared.problem
    return len(own.units) * len(own.cluster)
