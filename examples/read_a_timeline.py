"""What a step is spent on, read from its timeline: shares, the largest transfers, what fills the memory, who is idle.

    python examples/read_a_timeline.py                                  # a recurrent network on two P100
    python examples/read_a_timeline.py my_model.py:model v100x4

A `Timeline` has plain numpy arrays, by op, transfer and device; the comments name their shapes.
"""

from __future__ import annotations

import argparse

import numpy as np

import placelab
from envs.simulation.step_shares import SHARES, StepShares
from placelab import Timeline

MIB = 2**20


def shares(timeline: Timeline) -> str:
    """Milliseconds of the step by device and by what they are spent on."""
    spent = StepShares.of(timeline)  # spent["transfers"] is (devices,) seconds
    used = [share for share in SHARES if spent[share].any()]
    lines = ["device  " + "".join(f"{share:>12}" for share in used)]
    for index, device in enumerate(timeline.problem.cluster.devices):
        lines.append(f"{device.name:<8}" + "".join(f"{spent[share][index] * 1e3:>9.2f} ms" for share in used))
    return "\n".join(lines)


def largest_transfers(timeline: Timeline, count: int = 3) -> str:
    """The transfers that take longest: what is sent, from where to where, when and how long."""
    moved, graph = timeline.transfers, timeline.graph  # moved.start is (transfers,) seconds
    devices = [device.name for device in timeline.problem.cluster.devices]
    lines = []
    for one in np.argsort(moved.start - moved.finish)[:count]:
        size = graph.moved_bytes[moved.output[one]] / MIB
        begin, took = moved.start[one] * 1e3, (moved.finish[one] - moved.start[one]) * 1e3
        way = f"{devices[moved.source[one]]} to {devices[moved.destination[one]]}"
        name = graph.names[moved.producer[one]]
        lines.append(f"{name}: {size:.2f} MiB from {way}, at {begin:.2f} ms for {took:.2f} ms")
    return "\n".join(lines)


def memory(timeline: Timeline) -> str:
    """What each device holds when it holds most, and when that is."""
    lines = []
    for index, device in enumerate(timeline.problem.cluster.devices):
        times, held = timeline.memory_curve(index)  # both (changes,)
        peak = timeline.peak(index)
        lines.append(
            f"{device.name}: {peak.total / MIB:.1f} MiB at {times[held.argmax()] * 1e3:.2f} ms, of which "
            f"{peak.static / MIB:.1f} MiB are weights, gradients and optimizer state"
        )
    return "\n".join(lines)


def longest_wait(timeline: Timeline) -> str:
    """The longest time in which a device that still has ops to run is idle, and the op that ends it."""
    longest = (0.0, "No device is idle between its ops.")
    for index, device in enumerate(timeline.problem.cluster.devices):
        ops = np.flatnonzero(timeline.placement == index)  # timeline.placement is (ops,)
        ops = ops[np.argsort(timeline.start[ops], kind="stable")]
        waits = timeline.start[ops] - np.concatenate([[0.0], timeline.finish[ops]])[:-1]
        if len(ops) and waits.max() > longest[0]:
            at = ops[waits.argmax()]
            name = timeline.problem.graph.names[at]
            longest = (waits.max(), f"{device.name} is idle for {waits.max() * 1e3:.2f} ms before {name}.")
    return longest[1]


def main() -> None:
    """Find a plan, and print what its step is spent on."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("graph", nargs="?", default="rnnlm:layers=2,steps=8")
    parser.add_argument("cluster", nargs="?", default="p100x2")
    parser.add_argument("--budget", type=int, default=200)
    given = parser.parse_args()
    timeline = placelab.place(given.graph, cluster=given.cluster, plans="placement", budget=given.budget).timeline
    print(f"One step takes {timeline.step_seconds * 1e3:.2f} ms.\n")
    for part in (shares, largest_transfers, memory, longest_wait):
        print(part(timeline), end="\n\n")
    print(timeline.draw(width=100))


if __name__ == "__main__":
    main()
