"""What a step waited for, in sentences: how busy its devices are, and the longest times that they were idle for."""

import numpy as np

from envs.timelines.last_inputs import NONE
from envs.timelines.timeline import Timeline
from evaluation.drawing.step_boxes import Reason, StepLanes


def step_waits(timeline: Timeline, most: int) -> list[str]:
    """The busiest and the idlest device, and the longest waits of devices for inputs, at most so many.

    The sentences of a GNMT's step:

        gpu:0 is busy for 81% of the step, gpu:3 for 46%
        gpu:3 is idle for 12.1 ms until decoder.lstm/mm_4 of gpu:0 arrives, for decoder.attention/bmm_2
    """
    cluster, names, step = timeline.problem.cluster, timeline.graph.names, timeline.step_seconds
    shares = timeline.busy_seconds / step if step > 0 else np.zeros(len(cluster))
    busiest, idlest = int(shares.argmax()), int(shares.argmin())
    said = [f"{cluster.devices[busiest].name} is busy for {shares[busiest]:.0%} of the step"]
    if busiest != idlest:
        said[0] += f", {cluster.devices[idlest].name} for {shares[idlest]:.0%}"
    lanes = StepLanes.of(timeline)
    boxes = lanes.boxes
    waits = np.flatnonzero(np.isin(boxes.reason, (Reason.INPUT, Reason.TRANSFER)) & (boxes.awaited != NONE))
    waits = waits[[lanes.lanes[lane].device != NONE for lane in boxes.lane[waits].tolist()]]
    for box in waits[np.argsort(-boxes.waited[waits], kind="stable")][:most].tolist():
        awaited, ends = int(boxes.awaited[box]), "arrives" if boxes.reason[box] == Reason.TRANSFER else "ends"
        said.append(
            f"{lanes.lanes[boxes.lane[box]].label} is idle for {1e3 * boxes.waited[box]:.3g} ms until {names[awaited]} "
            f"of {cluster.devices[timeline.placement[awaited]].name} {ends}, for {names[boxes.op[box]]}"
        )
    return said
