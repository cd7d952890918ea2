"""AutoDP: which processes drive a pipeline once pipelines have become shorter (He et al. 2021, section 3.3).

There is a process for each device. The first processes of each block of devices that had a pipeline at the beginning
are active, one for each pipeline there is now. Two blocks of 8 devices, and pipelines of 8, then of 4 devices:

    rank       0  1  2  3  4  5  6  7   8  9 10 11 12 13 14 15
    8 devices  *-----------------------  *-----------------------      active: 0, 8
    4 devices  *-----------.             *-----------.
                  *-----------'             *-----------'              active: 0, 1, 8, 9: rank 1 has devices 4 to 7
"""

from dataclasses import dataclass

from graphs.foundation.errors import InputError


@dataclass(frozen=True)
class Groups:
    """The processes of a job, and the devices of their pipelines."""

    message: tuple[int, ...]
    """All ranks: they hear of each change (frozen layers, devices of a pipeline, largest stage, epoch, new ranks)."""
    training: tuple[int, ...]
    """The active ranks, which sum up gradients; this group is made again at each change."""
    devices: tuple[tuple[int, ...], ...]
    """(pipelines, devices) those of the pipeline of each active rank, in the order of its stages."""


def groups(processes: int, first: int, now: int) -> Groups:
    """The groups of `processes`, with pipelines of `first` devices at the beginning and of `now` at present.

    Raises InputError where devices would be left over.
    """
    if processes % first or first % now:
        raise InputError(
            f"{processes} devices, in pipelines of {first} at first and of {now} now, cannot all be used; choose "
            "numbers that divide each other"
        )
    training = tuple(start + rank for start in range(0, processes, first) for rank in range(first // now))
    devices = tuple(tuple(range(start, start + now)) for start in range(0, processes, now))
    return Groups(tuple(range(processes)), training, devices)
