"""BoxTable: the boxes of a step's chart as columns of numbers, and the words that the numbers stand for."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from envs.timelines.last_inputs import NONE
from evaluation.drawing.step_boxes import Reason, StepLanes
from graphs.op_graph import Floats, Ints

Column = NDArray[np.float64] | NDArray[np.float32] | NDArray[np.int32]


class BoxTable:
    """The boxes of several steps below one another. A name of an op is two words, since few of either are distinct."""

    def __init__(self) -> None:
        self._parts: list[dict[str, Column]] = []
        self._words: dict[str, dict[str, int]] = {
            kind: {} for kind in ("modules", "ops", "labels", "lanes", "kinds", "devices")
        }
        self.size = 0

    @property
    def words(self) -> dict[str, list[str]]:
        """The words of each kind, by their numbers, and the sentences of the reasons (`Reason.sentence`)."""
        words = {kind: list(words) for kind, words in self._words.items()}
        return {**words, "reasons": [reason.sentence for reason in Reason]}

    def columns(self) -> dict[str, Column]:
        """(boxes,) each."""
        return {name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]}

    def add(self, step: StepLanes, y: Floats, height: Floats, scale: float) -> int:
        """Add a step whose lanes, (lanes,), have these middles and heights; returns the number of its first box.

        Seconds are multiplied by `scale`.
        """
        boxes, placement = step.boxes, step.timeline.placement
        module, op = self._names(step, boxes.op)
        awaited_module, awaited_op = self._names(step, boxes.awaited)
        is_known = boxes.awaited != NONE
        pass_of = step.pass_of if len(step.pass_of) else np.full(len(placement), NONE)
        label = self._numbers("labels", step.labels)
        awaited = np.maximum(boxes.awaited, 0)
        devices = self._numbers("devices", [device.name for device in step.timeline.problem.cluster.devices])
        lanes = self._numbers("lanes", [lane.label for lane in step.lanes])
        self._parts.append({
            "start": boxes.start * scale, "finish": boxes.finish * scale,
            "y": y[boxes.lane].astype(np.float32), "height": (height[boxes.lane] - 4).astype(np.float32),
            "lane": _small(lanes[boxes.lane]), "kind": _small(self._numbers("kinds", step.kinds)[boxes.kind]),
            "module": _small(module), "op": _small(op), "count": _small(boxes.count),
            "busy": (boxes.busy * scale).astype(np.float32), "bytes": boxes.bytes.astype(np.float32),
            "reason": _small(boxes.reason), "waited": (boxes.waited * scale).astype(np.float32),
            "awaited_module": _small(awaited_module), "awaited_op": _small(np.where(is_known, awaited_op, NONE)),
            "awaited_device": _small(np.where(is_known, devices[placement[awaited]], NONE)),
            "awaited_label": _small(_taken(label, np.where(is_known, pass_of[awaited], NONE))),
            "label": _small(_taken(label, boxes.label)),
        })  # fmt: skip
        first, self.size = self.size, self.size + len(boxes)
        return first

    def _names(self, step: StepLanes, ops: Ints) -> tuple[Ints, Ints]:
        """(ops,) the numbers of the module and of the op in it; of `NONE`, that of an empty word."""
        names = step.timeline.problem.graph.names
        parts = [names[op].rpartition("/") if op != NONE else ("", "", "") for op in ops.tolist()]
        return self._numbers("modules", (part[0] for part in parts)), self._numbers("ops", (part[2] for part in parts))

    def _numbers(self, kind: str, words: Iterable[str]) -> Ints:
        """The number of each word; new ones get the next."""
        known = self._words[kind]
        return np.array([known.setdefault(word, len(known)) for word in words], np.int64)


def _taken(numbers: Ints, which: Ints) -> Ints:
    """Some of the numbers; `NONE` stays."""
    return np.where(which == NONE, NONE, numbers[which]) if len(numbers) else which


def _small(numbers: Ints) -> NDArray[np.int32]:
    return numbers.astype(np.int32)
