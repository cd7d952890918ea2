"""GPipe (Huang et al. 2019): a pipeline of balanced stages, through which the micro-batches of a step go.

Stages are the classic linear partition of section 2.1, as torchgpipe balances by time: units in the order of the
forward pass, layer by layer where names show layers, in as many blocks as there are places in the pipeline. The loss
is with the last layer, and forward and backward ops of a unit share its device. Neither memory nor transfers count, as
published. On unequal devices, time is the mean over them. A step has four micro-batches for each stage: with these,
the paper found, devices hardly wait.

Each stage may have several replicas, which divide every micro-batch. They are neighbours in the numbering of devices,
so that on servers the sum of the gradients stays inside a server, and only what passes between stages crosses: as in
DAPPLE's plans of eight and eight devices on two servers (Fan et al. 2021, table V).

Stages may be given by hand as well (`placers.pipelines.given_stages`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from envs.costs.costs import unit_seconds
from envs.pass_orders import PassOrder, Ranks, takes
from envs.pipelines.unit_order import pipeline_positions
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import WHOLE_BATCH, Schedule, pass_order_of
from graphs.foundation.by_name import Extension, Named
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats, Ints, OpGraph
from graphs.op_groups.coarsening import summed
from graphs.op_groups.layer_names import unit_layers
from graphs.problem import Problem
from placers.contract.whole_plans import accelerators, check_divides, most_that_divide, why_placements_only
from placers.pipelines.cutting.balance import block_partition, histogram_partition, least_partition
from placers.pipelines.given_stages import GivenStages, torn_blocks

PER_STAGE = 4  # micro-batches; section 2.3: bubbles are negligible if there are at least as many


@dataclass(frozen=True)
class GPipe(Named):
    """A pipeline of micro-batches through stages of balanced time."""

    divides_batch: ClassVar[bool] = True

    micro_batches: int = 0
    """Micro-batches of a step; 0 for four per stage, or fewer where those do not divide the batch."""
    replicas: int = 1
    """How many neighbouring devices divide the micro-batches of a stage."""
    order: str = "gpipe"
    """The order of passes (`envs.pass_orders`), such as early_backward_a for 1F1B."""
    recompute: bool = False
    """Whether stages run their forward ops again before the backward pass, instead of keeping what they made."""
    partition: Literal["least", "block", "histogram"] = "least"
    """How time is balanced: the least of the largest stage, torchgpipe's block partition, or lingvo's histogram, which
    may leave some stages out (`placers.pipelines.cutting.balance`)."""
    stages: str = ""
    """How many blocks each stage has, from the first to the last, such as 5+6+6+7, or the modules at which the second
    and later ones begin, such as layers.6+layers.12; "" for stages of balanced time, as many as there can be."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise InputError(f"gpipe: replicas is {self.replicas}; expected at least 1")
        if self.stages and len(self._given) and self.partition != "least":
            raise InputError(
                f"gpipe: partition={self.partition} balances stages, but stages={self.stages} says them; leave one out"
            )
        self._order.loaded()

    @cached_property
    def _order(self) -> Extension[PassOrder]:
        return pass_order_of(self.order)

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - nothing to search
        """Without any simulation. With one micro-batch and no replicas, the result is an op placement.

        That it is, too, with a note, where only placements make sense. Raises InputError for replicas that do not
        divide the devices, samples that cannot be divided, stages that a graph does not have or devices are too few
        for, and as the order of passes does.
        """
        is_placement = self.micro_batches == self.replicas == 1 and not self.recompute
        reason = "" if is_placement else why_placements_only(problem)
        if is_placement or reason:
            notes = [f"gpipe: stages without micro-batches or replicas, since {reason}."] if reason else []
            stages = self._stages_of_placement(problem)
            notes += self._torn(problem, stages[problem.graph.units].tolist())
            return PlacerResult.of_units(problem, stages, self.name, seed, notes=notes)
        plan = self._pipeline(problem)
        return PlacerResult(plan, self.name, seed, notes=self._torn(problem, plan.schedule.stages))

    def _torn(self, problem: Problem, stages: Sequence[int]) -> tuple[str, ...]:
        """A note on blocks that are not in the stages that were said, (ops,) each."""
        return torn_blocks(problem.graph, "gpipe", stages) if self.stages and self._given.counts and stages else ()

    def _pipeline(self, problem: Problem) -> Plan:
        devices, graph = accelerators(problem.cluster), problem.graph
        if len(devices) % self.replicas:
            raise InputError(
                f"gpipe: {len(devices)} devices of {problem.cluster.name!r} cannot be divided among stages of "
                f"{self.replicas} replicas; choose a number that divides them"
            )
        stages = self._stages_of_pipeline(problem, devices)[graph.units].tolist()
        count = max(stages) + 1
        ranks: Ranks = tuple((stage,) for stage in range(count))
        micro_batches = self.micro_batches or self._most(graph, PER_STAGE * count if count > 1 else 1, ranks)
        check_divides(graph, "gpipe", micro_batches, self.replicas)
        self._check_order(graph, ranks, micro_batches)
        several = [devices[stage * self.replicas : (stage + 1) * self.replicas] for stage in range(count)]
        recompute = tuple(range(count)) if self.recompute else ()
        schedule = Schedule(micro_batches, tuple(stages), self._order, recompute)
        if count == micro_batches == 1 and not recompute:
            schedule = WHOLE_BATCH  # there is nothing to put in order
        return Plan(tuple(several[stage] for stage in stages), schedule=schedule)

    @cached_property
    def _given(self) -> GivenStages:
        return GivenStages("gpipe", self.stages)

    def _stages_by_hand(self, problem: Problem, places: int) -> Ints:
        """(units,) the stage of each, of which the cluster has room for so many."""
        if len(self._given) > places:
            raise InputError(
                f"gpipe: stages={self.stages} says {len(self._given)} stages, the devices of {problem.cluster.name!r} "
                f"are enough for {places} with replicas={self.replicas}; say fewer"
            )
        return self._given.of_units(problem)

    def _stages_of_placement(self, problem: Problem) -> Ints:
        """(units,) the stage of each, one on each device."""
        devices = len(problem.cluster)
        if self.stages:
            return self._stages_by_hand(problem, devices)
        return self._blocks(unit_seconds(problem).mean(axis=1), np.argsort(problem.units.order), devices)

    def _stages_of_pipeline(self, problem: Problem, devices: Sequence[int]) -> Ints:
        """(units,) the stage of each, on as many of these devices as there are replicas."""
        most = len(devices) // self.replicas
        if self.stages:
            return self._stages_by_hand(problem, most)
        layers = unit_layers(problem.graph)
        position = pipeline_positions(problem, layers if len(layers) else problem.units.first_op)
        if len(users := problem.units.weight_uses[:, 0]):
            position = np.minimum(position, position[users].max())  # what follows the last layer, such as the loss
        return self._blocks(unit_seconds(problem)[:, devices].mean(axis=1), position, most)

    def _most(self, graph: OpGraph, most: int, ranks: Ranks) -> int:
        """The most micro-batches, up to `most`, that divide the samples and suit the order, if any do."""
        dividing = most_that_divide(graph, most, self.replicas)
        counts = (each for each in range(dividing, 0, -1) if graph.samples % (each * self.replicas) == 0)
        return next((each for each in counts if takes(self._order.built, ranks, each)), dividing)

    def _check_order(self, graph: OpGraph, ranks: Ranks, micro_batches: int) -> None:
        """Raise InputError as the order of passes, with numbers that it takes and that divide the samples, if any."""
        try:
            self._order.built.passes(ranks, micro_batches)
        except InputError as error:
            each = graph.samples // self.replicas
            taken = [
                count for count in range(1, each + 1) if each % count == 0 and takes(self._order.built, ranks, count)
            ]
            if not taken:
                raise
            sentence = str(error).partition("; use ")[0]
            numbers = " or ".join(map(str, taken[-2:]))
            raise InputError(
                f"{sentence}; use {numbers} micro-batches, into which {each} samples can be divided"
            ) from error

    def _blocks(self, seconds: Floats, position: Ints, most: int) -> Ints:
        """(units,) the block of each unit, of consecutive positions, (units,), with balanced seconds.

        `seconds` are those of each unit, (units,). There are `most` blocks, or as many as positions if those are fewer.
        """
        count = int(position.max()) + 1
        blocks = min(most, count)
        total = summed(position, seconds, count)
        if self.partition == "block":
            found = block_partition(total, blocks)
        elif self.partition == "histogram":
            found = histogram_partition(total, blocks)
        else:
            found = least_partition(total, blocks)
        return np.unique(found, return_inverse=True)[1][position]  # without empty blocks


build = GPipe
