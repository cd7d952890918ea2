"""A plan by its degrees: data, tensor and pipeline parallelism as Megatron-LM and torchtitan have them.

The answer to "what will my plan take": nothing is chosen or searched. Of the devices, those of a tensor-parallel group
follow one another, then its replicas, then the stages (Narayanan et al. 2021, section 3):

    dp=2, tp=2, pp=2        stage 0: 0 1 | 2 3        stage 1: 4 5 | 6 7        two replicas of two shards each

Stages have equally many blocks, or what `stages` says (`placers.pipelines.given_stages`); what is before the first
block is with it, and what follows the last one with that. Inside of a stage, columns and rows of weights are divided
by Megatron-LM's rule (`placers.splits.column_row`); each shard does all else in whole. Ops run in the order of the
program.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from envs.pass_orders import PassOrder, Ranks, takes
from envs.pipelines.pipeline import ONE_F_ONE_B
from envs.plans.mesh import Mesh, Split
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import WHOLE_BATCH, AllReduceOrDefault, Recomputing, Schedule, Shares, Zero, pass_order_of
from graphs.foundation.by_name import Extension, Named
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from placers.contract.whole_plans import accelerators, check_divides, given_shares, why_placements_only
from placers.pipelines.given_stages import GivenStages, pipeline_blocks
from placers.splits.column_row import columns_and_rows, over_mesh
from placers.splits.undivided import why_undivided

BY_REQUEST = True  # it says a plan, and looks for none

Notes = tuple[str, ...]


@dataclass(frozen=True)
class Parallel(Named):
    """A plan given by its degrees of data, tensor and pipeline parallelism, as Megatron-LM runs it."""

    divides_batch: ClassVar[bool] = True

    dp: int = 0
    """Replicas, which divide the batch; 0 for all devices over tp times pp. CPUs are used only if there is nothing
    else."""
    tp: int = 1
    """Shards of each replica, which divide columns and rows of weights."""
    pp: int = 1
    """Stages of the pipeline, each on devices of its own."""
    micro_batches: int = 1
    """Micro-batches of a step, on each replica."""
    interleaved: int = 1
    """Stages of each device, in turns: Megatron-LM's virtual pipeline stages. For orders that take only that, two in
    the shape of a V."""
    recompute: bool = False
    """Whether forward ops run again for the backward pass, instead of keeping what they made: Megatron-LM's full
    recomputation of each layer."""
    recompute_at: Recomputing = "block"
    """When: block by block; `late` for each stage as a whole, or `early` for that as soon as its devices are free."""
    all_reduce: AllReduceOrDefault = ""
    """How replicas, and shards, sum up, as `data_parallel` has it; "" as the runtime does, on GPUs alone with NCCL."""
    order: str = ""
    """The order of passes (`envs.pass_orders`); "" for 1F1B, or `interleaved` with several stages on each device."""
    zero: Zero = 0
    """The stage of ZeRO: what replicas hold in parts rather than in whole: of 1 optimizer state, of 2 gradients too, of
    3 weights too, which are gathered block by block as PyTorch's FullyShardedDataParallel does."""
    shares: str = ""
    """How many parts of each micro-batch the replicas of a stage take, such as 3:1; "" for equally many."""
    stages: str = ""
    """How many blocks each stage has, from the first to the last, such as 5+6+6+7, or the modules at which the second
    and later ones begin, such as layers.6+layers.12; "" for equally many blocks."""

    def __post_init__(self) -> None:
        for knob, least in (("dp", 0), ("tp", 1), ("pp", 1), ("micro_batches", 1), ("interleaved", 1)):
            if getattr(self, knob) < least:
                raise InputError(f"parallel: {knob} is {getattr(self, knob)}; expected at least {least}")
        Schedule(zero=self.zero)  # refused here, not after a model was captured for it
        self._check_shares()
        self._order.loaded()
        if self.stages and len(self._given) != self._stages:
            raise InputError(
                f"parallel: stages={self.stages} says {len(self._given)} stages, pp={self.pp} and interleaved="
                f"{self.interleaved} say {self._stages}; change one"
            )

    def _check_shares(self) -> None:
        if self._shares and self.tp > 1:
            raise InputError(f"parallel: shares={self.shares} cannot be combined with tp={self.tp}; leave one out")
        if self._shares and self.dp not in (0, len(self._shares)):
            raise InputError(
                f"parallel: shares={self.shares} are of {len(self._shares)} replicas, and dp={self.dp}; change one"
            )

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:  # noqa: ARG002 - nothing to search
        """Without any simulation.

        Raises InputError for more devices than there are, or, without dp, a number that tp and pp do not divide; for
        samples that cannot be divided; blocks that stages cannot have equally many of, or stages that a graph does not
        have; a problem of placements only,
        or, with tp, one whose ops cannot be divided; and as the order of passes does.
        """
        if reason := why_placements_only(problem):
            raise InputError(f"parallel runs ops on several devices, but {reason}; use another placer")
        devices, graph = accelerators(problem.cluster), problem.graph
        width = self._width(problem, len(devices))
        replicas = width // self.tp
        check_divides(graph, "parallel", self.micro_batches, replicas, self._shares)
        rank, stages = self._rank_of_stage(), self._stage_of_op(problem)
        split, mesh, notes = self._split(problem, devices, replicas)
        zero: Zero = self.zero if replicas > 1 else 0
        shares = (self._shares,) * len(rank)
        schedule = WHOLE_BATCH if width == 1 else Schedule(all_reduce=self.all_reduce, zero=zero, shares=shares)
        if len(rank) > 1 or self.micro_batches > 1 or self.recompute:
            recompute = tuple(range(len(rank))) if self.recompute else ()
            when = self.recompute_at if self.recompute else WHOLE_BATCH.recompute_at
            schedule = Schedule(
                self.micro_batches, stages if len(rank) > 1 else (), self._order, recompute, when,
                all_reduce=self.all_reduce, zero=zero, shares=shares,
            )  # fmt: skip
        of_rank = [devices[place * width : (place + 1) * width] for place in range(self.pp)]
        plan = Plan(tuple(of_rank[rank[stage]] for stage in stages), PROGRAM, schedule, split, mesh)
        return PlacerResult(plan, self.name, seed, notes=notes)

    @cached_property
    def _order(self) -> Extension[PassOrder]:
        return pass_order_of(self.order or (ONE_F_ONE_B if self.interleaved == 1 else "interleaved"))

    @cached_property
    def _given(self) -> GivenStages:
        return GivenStages("parallel", self.stages)

    @cached_property
    def _shares(self) -> Shares:
        return given_shares("parallel", self.shares) if self.shares else ()

    @property
    def _stages(self) -> int:
        return self.pp * self.interleaved

    def _width(self, problem: Problem, devices: int) -> int:
        """How many devices each stage is on."""
        others, dp = self.tp * self.pp, self.dp or len(self._shares)
        count = others * dp if dp else devices
        if count > devices or count % others:
            degrees = f"dp={dp}, tp={self.tp} and pp={self.pp}" if dp else f"tp={self.tp} and pp={self.pp}"
            raise InputError(
                f"parallel: {degrees} take {others * max(dp, 1)} devices{'' if dp else ' for each replica'}, "
                f"cluster {problem.cluster.name!r} has {devices}; choose degrees whose product is "
                + ("at most that" if dp else "a divisor of that, or say dp")
            )
        return count // self.pp

    def _rank_of_stage(self) -> list[int]:
        """(stages,) the place in the pipeline that each is on. Raises InputError as the order of passes."""
        places, stages = self.pp, self._stages
        shapes: list[Ranks] = [tuple(tuple(range(place, stages, places)) for place in range(places))]
        if stages == 2 * places:
            shapes.append(tuple((place, stages - 1 - place) for place in range(places)))
        ranks = next((each for each in shapes if takes(self._order.built, each, 2 * places)), shapes[0])
        if stages > 1 or self.micro_batches > 1:
            self._order.built.passes(ranks, self.micro_batches)
        return [next(place for place, some in enumerate(ranks) if stage in some) for stage in range(stages)]

    def _stage_of_op(self, problem: Problem) -> tuple[int, ...]:
        """(ops,) the stage of each."""
        if self.stages:
            stage = self._given.of_units(problem)
        elif self._stages == 1:
            stage = np.zeros(problem.graph.num_units, np.int64)
        else:
            block = pipeline_blocks(problem, "parallel", self._stages)
            stage = block // self._blocks_of_stage(problem.graph, int(block.max()) + 1)
        return tuple(stage[problem.graph.units].tolist())

    def _split(self, problem: Problem, devices: Sequence[int], replicas: int) -> tuple[tuple[Split, ...], Mesh, Notes]:
        """What each op of a stage divides, over which mesh, and how much of the work that is."""
        if self.tp == 1:
            return (), (), ()
        graph = problem.graph
        if reason := why_undivided(problem, devices):
            raise InputError(f"parallel: ops cannot be divided with tp={self.tp}, since {reason}")
        by = columns_and_rows(graph, self.tp)
        if not any(by):
            raise InputError(
                f"parallel: no product of {graph.name!r} can be divided by {self.tp} columns, and the next one by "
                "rows; choose a tp that divides the numbers of heads and of features, or 1"
            )
        divided = graph.flops[[bool(index) for index in by]].sum() / graph.flops.sum()
        note = (
            f"parallel: of the FLOPs {divided:.0%} are divided among the {self.tp} shards, each of which does the "
            "others in whole."
        )
        return *over_mesh(graph, by, replicas, self.tp), (note,)

    def _blocks_of_stage(self, graph: OpGraph, count: int) -> int:
        """How many of so many blocks each stage has, equally many."""
        stages = self._stages
        if count % stages:
            each = [count * (stage + 1) // stages - count * stage // stages for stage in range(stages)]
            remedy = f"say stages={'+'.join(map(str, each))}" if count > stages else "choose fewer stages"
            raise InputError(
                f"parallel: {graph.name!r} has {count} blocks, of which {stages} stages cannot have equally many; "
                + remedy
            )
        return count // stages


build = Parallel
