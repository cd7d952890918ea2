"""Equal devices: those of a cluster that can change places without any effect on any plan."""

import numpy as np
from scipy.optimize import linear_sum_assignment

from envs.replacement.running import stored_bytes
from graphs.cluster import FREE, Cluster
from graphs.op_graph import Floats, Ints
from graphs.problem import Problem


def interchangeable(cluster: Cluster, seconds: Floats) -> Ints:
    """(devices,) the first device that could change places with this one without any effect; itself if none.

    `seconds` is (ops, devices). Two devices can if they are equal and, once they are swapped, every pair of devices
    has the link it had and shares its channel with the same pairs. In two servers of two devices, 0 = 1 --- 2 = 3,
    one can swap 0 with 1, but not with 2: the fast link 0 = 1 would then be slow.
    """
    count = len(cluster)
    same = np.arange(count)
    for one in range(count):
        for other in range(one):
            if same[other] == other and _swappable(cluster, seconds, one, other):
                same[one] = other
                break
    return same


def is_symmetry(cluster: Cluster, seconds: Floats, turned: Ints) -> bool:
    """Whether devices can change places without any effect: device d becomes turned[d], (devices,)."""
    moved = np.flatnonzero(turned != np.arange(len(cluster)))
    goes_to = turned[moved]
    devices = cluster.devices
    if any(devices[one].usable_bytes != devices[other].usable_bytes for one, other in zip(moved, goes_to, strict=True)):
        return False
    if (seconds[:, goes_to] != seconds[:, moved]).any():
        return False
    swapped = np.ix_(turned, turned)  # matrix[swapped] has rows and columns exchanged
    apart = ~np.eye(len(cluster), dtype=np.bool_)
    if any((matrix != matrix[swapped])[apart].any() for matrix in (cluster.latency, cluster.bandwidth)):
        return False
    # the swap may give channels other numbers, but must pair each channel before with exactly one after:
    # before 0 0 1 and after 1 1 0 will do; before 0 0 1 and after 0 1 1 will not, as other links share a channel
    before, after = cluster.channel[apart], cluster.channel[swapped][apart]
    renamed = np.unique(np.stack([before, after], axis=1), axis=0)
    serial = renamed[(renamed != FREE).all(axis=1)]
    return bool(
        len(renamed) == len(np.unique(before)) == len(np.unique(after))
        and ((renamed[:, 0] == FREE) == (renamed[:, 1] == FREE)).all()
        and (cluster.gap[serial[:, 0]] == cluster.gap[serial[:, 1]]).all()
        and (cluster.multicast[serial[:, 0]] == cluster.multicast[serial[:, 1]]).all()
    )


def _swappable(cluster: Cluster, seconds: Floats, one: int, other: int) -> bool:
    turned = np.arange(len(cluster))
    turned[[one, other]] = other, one
    return is_symmetry(cluster, seconds, turned)


def renamed_to_stay(problem: Problem, same: Ints, placement: Ints, running: Ints) -> Ints:
    """(units,) a placement with equal devices renamed, so that as many bytes as possible stay where they run.

    Bytes are those of each unit's weights and optimizer state; `same`, (devices,), is what `interchangeable` says, and
    `running`, (units,), is negative where a unit runs nowhere. A step takes as long as before.
    """
    if problem.allowed is not None:
        return placement
    stays, runs = np.zeros((len(same), len(same))), running >= 0
    moved = problem.units.weight_bytes(stored_bytes(problem))
    np.add.at(stays, (placement[runs], running[runs]), moved[runs])
    name = np.arange(len(same))
    for first in np.unique(same).tolist():
        equal = np.flatnonzero(same == first)
        one, other = linear_sum_assignment(stays[np.ix_(equal, equal)], maximize=True)
        name[equal[one]] = equal[other]
    return name[placement]
