"""Construction: a pipeline, decision by decision.

    4 micro-batches, order early_backward_a
        device 0, enough devices, end after layer 2, keep outputs                 one stage,
        device 1, device 2, enough devices, end after layer 6, recompute          and the next, on two replicas

Stages have devices of their own until an action says that further ones go over the same devices again, in the way of
the order of passes (`envs.pipelines.shapes`); from then on no devices are asked for. What the mask of a decision leaves
can always be completed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from envs.pass_orders import PassOrder
from envs.pipelines.pipeline import LayerPipeline, LayerStage
from envs.pipelines.shapes import PipelineShape, shapes_of
from envs.plans.schedule import AS_READY, Sharing
from graphs.foundation.by_name import Extension
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools


class Decision(IntEnum):
    """What is decided next."""

    MICRO_BATCHES = 0
    ORDER = 1
    DEVICES = 2  # one more for the stage under way, or enough
    END = 3  # the last layer of the stage
    RECOMPUTE = 4  # whether the stage keeps only what enters it


@dataclass(frozen=True)
class Actions:
    """The numbers of all actions, whatever the problem; of these `Construction.legal` are possible.

    Of each decision they follow one another: micro-batches; orders of passes; devices, enough of them, the same ones
    again; the layer after which the stage ends; keep, recompute.
    """

    micro_batches: tuple[int, ...]
    orders: tuple[Extension[PassOrder], ...]
    devices: int  # at most
    layers: int  # at most

    @property
    def first_order(self) -> int:
        """The number of the first order of passes."""
        return len(self.micro_batches)

    @property
    def first_device(self) -> int:
        """The number of device 0."""
        return self.first_order + len(self.orders)

    @property
    def enough(self) -> int:
        """The stage under way has all its devices."""
        return self.first_device + self.devices

    @property
    def again(self) -> int:
        """The stage under way and all that follow go over the devices of the stages so far again."""
        return self.enough + 1

    @property
    def first_end(self) -> int:
        """The stage under way ends after layer 0."""
        return self.again + 1

    @property
    def keep(self) -> int:
        """The stage keeps what its backward pass reads."""
        return self.first_end + self.layers

    @property
    def recompute(self) -> int:
        """The stage computes it again."""
        return self.keep + 1

    def __len__(self) -> int:
        return self.recompute + 1

    def name(self, action: int) -> str:
        """What an action says, such as "8 micro-batches" or "device 3"."""
        if action < self.first_order:
            count = self.micro_batches[action]
            return f"{count} micro-batch{'es' * (count > 1)}"
        if action < self.first_device:
            return f"order {self.orders[action - self.first_order]}"
        if action < self.enough:
            return f"device {action - self.first_device}"
        if self.first_end <= action < self.keep:
            return f"end after layer {action - self.first_end}"
        last = {self.enough: "enough devices", self.again: "the same devices again", self.keep: "keep outputs"}
        return last.get(action, "recompute")


class Construction:
    """One pipeline under way, over `layers` and `devices`; `take` decides what `decision` says.

    `samples` are those of a step, 0 if that is not known: micro-batches and replicas divide them. Orders of passes that
    run weight gradients apart are possible if the graph keeps them apart. `usable` are the devices for stages, all
    unless given.
    """

    def __init__(
        self, actions: Actions, layers: int, devices: int, *, samples: int = 0, is_training: bool = True,
        weight_gradients_apart: bool = True, sharing: Sharing = "split", usable: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.actions, self.layers, self.devices = actions, layers, devices
        self.usable = tuple(usable) or tuple(range(devices))
        self.decision = Decision.MICRO_BATCHES
        self.micro_batches = 0  # not yet decided
        self.order = AS_READY  # not yet decided
        self.stages: list[LayerStage] = []  # those whose end is known
        self.recomputed: list[int] = []  # of these
        self.chosen: list[int] = []  # devices of the stage under way
        self.lapping: tuple[PipelineShape, ...] = ()  # the shapes that are possible once devices have been used again
        self.samples, self.is_training, self.sharing = samples, is_training, sharing
        self.weight_gradients_apart = weight_gradients_apart

    @property
    def begin(self) -> int:
        """The first layer of the stage under way."""
        return self.stages[-1].end if self.stages else 0

    @property
    def ended(self) -> bool:
        """Whether everything is decided."""
        return self.decision == Decision.DEVICES and self.begin == self.layers

    @property
    def free(self) -> list[int]:
        """The devices that no stage has."""
        used = {*self.chosen, *(device for stage in self.stages for device in stage.devices)}
        return [device for device in self.usable if device not in used]

    @property
    def pipeline(self) -> LayerPipeline:
        """The pipeline, once it has ended."""
        return LayerPipeline(tuple(self.stages), self.micro_batches, self.order, tuple(self.recomputed), self.sharing)

    def take(self, action: int) -> None:
        """Decide. Raises InputError for an action that is not possible now."""
        legal = self.legal()
        if not 0 <= action < len(legal) or not legal[action]:
            possible = [self.actions.name(each) for each in np.flatnonzero(legal).tolist()]
            what = self.actions.name(action) if 0 <= action < len(legal) else str(action)
            raise InputError(f"the action is {what!r}; expected one of: {', '.join(possible) or 'none, it has ended'}")
        _TAKE[self.decision](self, action)

    def legal(self) -> Bools:
        """(actions,) what is possible now: all of it leads to a whole pipeline. Nothing is once it has ended."""
        legal = np.zeros(len(self.actions), np.bool_)
        if not self.ended:
            legal[_LEGAL[self.decision](self)] = True
        return legal

    def towards(self, pipeline: LayerPipeline) -> list[int]:
        """Take the actions that make a pipeline of all that is still to be decided, and return them.

        Devices of a stage come in ascending order. Raises InputError for one that is not among those which can be made.
        """
        taken = []
        while not self.ended:
            taken.append(self.leading_to(pipeline)[0])
            self.take(taken[-1])
        if self.pipeline != pipeline:
            raise InputError(f"{pipeline} cannot be made here; these decisions would make {self.pipeline}")
        return taken

    def leading_to(self, pipeline: LayerPipeline) -> list[int]:
        """The actions that a pipeline may be made with next: one, or more where a stage lacks several devices.

        Raises InputError if nothing leads to it.
        """
        actions, number = self.actions, len(self.stages)
        try:
            if self.decision == Decision.MICRO_BATCHES:
                return [actions.micro_batches.index(pipeline.micro_batches)]
            if self.decision == Decision.ORDER:
                return [actions.first_order + actions.orders.index(pipeline.order)]
            if self.decision == Decision.RECOMPUTE:
                return [actions.recompute if number - 1 in pipeline.recompute else actions.keep]
            stage = pipeline.stages[number]
        except (ValueError, IndexError):
            raise InputError(
                f"{pipeline} cannot be made here: there are {actions.micro_batches} micro-batches, the orders "
                f"{', '.join(map(str, actions.orders))}, and {self.layers} layers"
            ) from None
        if self.decision == Decision.END:
            return [actions.first_end + stage.end - 1]
        if not self.chosen and set(stage.devices) & {each for before in self.stages for each in before.devices}:
            return [actions.again]
        left = sorted(set(stage.devices) - set(self.chosen))
        return [actions.first_device + device for device in left] or [actions.enough]

    # ---- what is possible ------------------------------------------------------------------------------------------

    def _shapes(self, order: Extension[PassOrder], micro_batches: int) -> tuple[PipelineShape, ...]:
        apart = self.weight_gradients_apart
        return shapes_of(order, micro_batches, len(self.usable), self.layers, weight_gradients_apart=apart)

    def _legal_micro_batches(self) -> list[int]:
        return [
            number
            for number, count in enumerate(self.actions.micro_batches)
            if self.samples % count == 0 and any(self._shapes(order, count) for order in self.actions.orders)
        ]

    def _legal_orders(self) -> list[int]:
        orders = enumerate(self.actions.orders, self.actions.first_order)
        return [number for number, order in orders if self._shapes(order, self.micro_batches)]

    def _legal_devices(self) -> list[int]:
        free, count, number = self.free, len(self.chosen), len(self.stages)
        left = self.layers - self.begin
        # a number of replicas is possible if the layers after this stage suffice for the stages that must follow
        possible = [
            several
            for several in range(max(count, 1), count + len(free) + 1)
            if self._divides(several) and self._fewest_after(number + 1, len(free) + count - several) <= left - 1
        ]
        legal = [self.actions.first_device + device for device in free if possible and possible[-1] > count]
        if count in possible:
            legal.append(self.actions.enough)
        if not count and any(shape.stages - number <= left for shape in self._laps(number)):
            legal.append(self.actions.again)
        return legal

    def _legal_ends(self) -> list[int]:
        number = len(self.stages) + 1  # of stages then
        shapes = self.lapping or self._reachable(number, len(self.free))
        following = [shape.stages - number for shape in shapes]
        may_end, fewest = 0 in following, min((each for each in following if each > 0), default=self.layers)
        ends = range(self.begin, self.layers)
        return [
            self.actions.first_end + end
            for end in ends
            if (may_end if end == self.layers - 1 else self.layers - 1 - end >= fewest)
        ]

    def _legal_recompute(self) -> list[int]:
        return [self.actions.keep, self.actions.recompute] if self.is_training else [self.actions.keep]

    def _divides(self, replicas: int) -> bool:
        """Whether what a stage computes can be divided among `replicas`."""
        if self.sharing == "turns":
            return self.micro_batches % replicas == 0
        return self.samples // self.micro_batches % replicas == 0

    def _reachable(self, stages: int, free: int) -> list[PipelineShape]:
        """The shapes still possible with `stages` on devices of their own and `free` devices."""
        shapes = self._shapes(self.order, self.micro_batches)
        return [shape for shape in shapes if stages <= shape.ranks <= stages + free]

    def _fewest_after(self, stages: int, free: int) -> int:
        """The smallest number of stages that must follow; more than there are layers if nothing can."""
        return min((shape.stages - stages for shape in self._reachable(stages, free)), default=self.layers)

    def _laps(self, stages: int) -> list[PipelineShape]:
        """The shapes in which further stages go over the devices of these again."""
        laps = [shape for shape in self._reachable(stages, 0) if shape.stages > shape.ranks]
        return [shape for shape in laps if shape.is_v == laps[0].is_v]

    # ---- what follows ----------------------------------------------------------------------------------------------

    def _take_micro_batches(self, action: int) -> None:
        self.micro_batches = self.actions.micro_batches[action]
        self.decision = Decision.ORDER

    def _take_order(self, action: int) -> None:
        self.order = self.actions.orders[action - self.actions.first_order]
        self.decision = Decision.DEVICES

    def _take_devices(self, action: int) -> None:
        if action == self.actions.enough:
            self.decision = Decision.END
        elif action == self.actions.again:
            self.lapping = tuple(self._laps(len(self.stages)))
            self._lap()
        else:
            self.chosen.append(action - self.actions.first_device)

    def _take_end(self, action: int) -> None:
        end = action - self.actions.first_end + 1
        self.stages.append(LayerStage(self.begin, end, tuple(sorted(self.chosen))))
        number = len(self.stages)
        self.lapping = tuple(shape for shape in self.lapping if shape.stages >= number)
        self.chosen = []
        self.decision = Decision.RECOMPUTE

    def _take_recompute(self, action: int) -> None:
        if action == self.actions.recompute:
            self.recomputed.append(len(self.stages) - 1)
        self.decision = Decision.DEVICES
        if self.lapping and not self.ended:
            self._lap()

    def _lap(self) -> None:
        """The next stage is on the devices of an earlier one; where it ends is decided next."""
        self.chosen = list(self.stages[self.lapping[0].rank_of(len(self.stages))].devices)
        self.decision = Decision.END


_LEGAL = {
    Decision.MICRO_BATCHES: Construction._legal_micro_batches,
    Decision.ORDER: Construction._legal_orders,
    Decision.DEVICES: Construction._legal_devices,
    Decision.END: Construction._legal_ends,
    Decision.RECOMPUTE: Construction._legal_recompute,
}
_TAKE = {
    Decision.MICRO_BATCHES: Construction._take_micro_batches,
    Decision.ORDER: Construction._take_order,
    Decision.DEVICES: Construction._take_devices,
    Decision.END: Construction._take_end,
    Decision.RECOMPUTE: Construction._take_recompute,
}
