"""The most samples that pass through stages at once, whose replicas share them by speed: a linear program.

A device that is in several stages divides its time among them, and so does a link that carries what several send. Where
none is, it is a maximum flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

UNBOUNDED = 3  # a status of SciPy's


class Place(NamedTuple):
    """A device in a stage."""

    stage: int
    device: int
    seconds: float  # of a sample; infinite if it cannot compute any


class Link(NamedTuple):
    """From a place to one in the next stage."""

    source: int  # place
    target: int  # place
    seconds: float  # of a sample


def seconds_apart(places: Sequence[Place], links: Sequence[Link]) -> float:
    """Seconds from sample to sample that pass through all stages; infinite if none does, 0 if nothing takes time.

    What leaves a place takes its links to the next stage, in any shares.
    """
    taken = np.array([*(each.seconds for each in places), *(each.seconds for each in links)])
    may = np.isfinite(taken)
    if not (taken[may] > 0).any():
        return 0.0 if may.all() else np.inf
    unit = float(taken[may].max())  # of time
    device = [each.device for each in places]
    last, count = max(each.stage for each in places), len(places)
    shared: dict[tuple[int, ...], int] = {}  # a device, or two that are linked: a row
    limits = [shared.setdefault((each,), len(shared)) for each in device]
    limits += [shared.setdefault((device[each.source], device[each.target]), len(shared)) for each in links]
    weight = np.where(may, taken, 0.0) / unit
    limited: Any = coo_array((weight, (limits, np.arange(len(taken)))), shape=(len(shared), len(taken))).tocsr()
    passed = list[tuple[int, int, float]]()  # what a place gets it computes, and what it computes it sends
    for place, each in enumerate(places):
        passed += [(place, place, -1.0)] if each.stage < last else []
        passed += [(count + place, place, -1.0)] if each.stage else []
    for number, link in enumerate(links):
        passed += [(link.source, count + number, 1.0), (count + link.target, count + number, 1.0)]
    row, column, sign = np.array(passed or [(0, 0, 0.0)]).T
    at = row.astype(np.int64), column.astype(np.int64)
    equal: Any = coo_array((sign, at), shape=(2 * count, len(taken))).tocsr()
    gain = np.array([-float(each.stage == 0) for each in places] + [0.0] * len(links))
    bounds = [(0.0, None if each else 0.0) for each in may.tolist()]
    found = linprog(gain, limited, np.ones(len(shared)), equal, np.zeros(2 * count), bounds, method="highs")
    if found.status == UNBOUNDED:
        return 0.0
    most = -float(found.fun or 0.0)
    return unit / most if most > 0 else np.inf
