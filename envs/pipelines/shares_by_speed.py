"""Shares by speed: how many parts of a micro-batch each of several replicas takes, such that all of them end together.

seconds of a replica    fixed + per_part x parts         as equal as whole numbers of parts allow
"""

import numpy as np

from envs.plans.schedule import Shares
from graphs.op_graph import Floats

PARTS = 64  # of a micro-batch whose samples are not known, and the most that stages of a pipeline share; ours


def shares_by_speed(per_part: Floats, fixed: Floats, parts: int, most: Floats | None = None) -> Shares:
    """(replicas,) how many of all parts each replica takes, at most `most` of each, if all of them can be placed.

    At least one each, if there are as many; else those that would end last have none.
    """
    per_part = np.maximum(per_part, 1e-30)
    least = np.zeros(len(fixed))
    least[np.argsort(fixed + per_part, kind="stable")[:parts]] = 1.0
    unlimited = np.full(len(fixed), float(parts))
    most = np.maximum(unlimited if most is None or most.sum() < parts else most, least)

    def taken(seconds: float) -> Floats:
        return np.clip((seconds - fixed) / per_part, least, most)

    low, high = 0.0, float((fixed + per_part * parts).max())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if taken(middle).sum() >= parts else (middle, high)
    found = np.maximum(np.floor(taken(high)), least)
    while missing := int(
        parts - found.sum()
    ):  # the one that then ends first takes a part, that which ends last has less
        change = int(np.sign(missing))
        ends = fixed + per_part * (found + change)
        may = found < most if change > 0 else found > least
        found[np.where(may, ends * change, np.inf).argmin()] += change
    return tuple(found.astype(int).tolist())
