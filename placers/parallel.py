"""A plan by its degrees: data, tensor, sequence, context, expert and pipeline parallelism, as Megatron-LM has them.

The answer to "what will my plan take": nothing is chosen or searched. Of the devices, those of a tensor-parallel group
follow one another, then its replicas, then the stages (Narayanan et al. 2021, section 3):

    dp=2, tp=2, pp=2        stage 0: 0 1 | 2 3        stage 1: 4 5 | 6 7        two replicas of two shards each

Stages have equally many blocks, or what `stages` says (`placers.pipelines.given_stages`); what is before the first
block is with it, and what follows the last one with that. Inside of a stage ops are divided by their indices
(`placers.splits.degrees`); what is divided by none each shard does in whole. Ops run in the order of the program.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from envs.pass_orders import PassOrder, Ranks, takes
from envs.pipelines.pipeline import ONE_F_ONE_B
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import (
    WHOLE_BATCH,
    AllReduceOrDefault,
    Recomputing,
    Schedule,
    Shares,
    Zero,
    least_shares,
    pass_order_of,
)
from graphs.foundation.by_name import Extension, Named
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from placers.contract.whole_plans import accelerators, check_divides, given_shares, why_placements_only
from placers.pipelines.given_stages import GivenStages, pipeline_blocks, torn_blocks
from placers.splits.degrees import Degrees, Divided
from placers.splits.undivided import why_undivided

BY_REQUEST = True  # it says a plan, and looks for none


@dataclass(frozen=True)
class Parallel(Named):
    """A plan given by its degrees of parallelism, as Megatron-LM runs it."""

    divides_batch: ClassVar[bool] = True

    dp: int = 0
    """Replicas, which divide the batch; 0 for all devices over tp times cp times pp. CPUs are used only if there is
    nothing else."""
    tp: int = 1
    """Shards of each replica, which divide columns and rows of weights."""
    sequence: bool = False
    """Whether shards divide all else along the sequence (sequence parallelism, Korthikanti et al. 2022)."""
    cp: int = 1
    """Parts of the sequence, all of whose ops are divided along it, while keys and values are gathered (context
    parallelism)."""
    ep: int = 1
    """Devices, of the replicas, that divide the experts of a mixture among them (expert parallelism)."""
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
    shard_group: int = 0
    """Of how many replicas each group holds all parts, such as those of a server; 0 for all replicas of a stage."""
    offload: bool = False
    """Whether the nearest CPU updates weights, and has optimizer state and master copies (ZeRO-Offload); of several
    replicas with `zero`."""
    shares: str = ""
    """How many parts of each micro-batch the replicas of a stage take, such as 3:1; "" for equally many."""
    stages: str = ""
    """How many blocks each stage has, from the first to the last, such as 5+6+6+7, or the modules at which the second
    and later ones begin, such as layers.6+layers.12; "" for equally many blocks."""

    def __post_init__(self) -> None:
        for knob in ("dp", "tp", "cp", "ep", "pp", "micro_batches", "interleaved"):
            if getattr(self, knob) < (least := int(knob != "dp")):
                raise InputError(f"parallel: {knob} is {getattr(self, knob)}; expected at least {least}")
        Schedule(zero=self.zero, shard_group=self.shard_group)  # refused here, not after a model was captured for it
        self._check_combination()
        self._order.loaded()
        if self.stages and len(self._given) != self._stages:
            raise InputError(
                f"parallel: stages={self.stages} says {len(self._given)} stages, pp={self.pp} and interleaved="
                f"{self.interleaved} say {self._stages}; change one"
            )

    def _check_combination(self) -> None:
        if self._degrees:
            odd = {"zero": self.zero % 3, "shard_group": self.shard_group, "offload": self.offload}
            if knob := next((knob for knob, said in odd.items() if said), ""):
                remedy = "take zero=3, or leave one out" if knob == "zero" else "leave one out"
                raise InputError(
                    f"parallel: {knob}={getattr(self, knob)} cannot be combined with {self._degrees[0]}; {remedy}"
                )
            if self.shares and (self.ep > 1 or self.zero):  # devices would have unequal parts of experts, or of states
                other = f"ep={self.ep}" if self.ep > 1 else f"{self._degrees[0]} and zero={self.zero}"
                raise InputError(f"parallel: shares={self.shares} cannot be combined with {other}; leave one out")
        if self.sequence and self.tp == 1:
            raise InputError("parallel: sequence=true divides what shards of tp do besides, and tp is 1; say tp")
        if self.ep > 1 and self.cp > 1:
            raise InputError(
                f"parallel: ep={self.ep} cannot be combined with cp={self.cp}, since tokens of a whole sequence choose "
                "their experts; leave one out"
            )
        if self.dp % self.ep:
            raise InputError(
                f"parallel: ep={self.ep} experts' devices are of the dp={self.dp} replicas; choose a divisor"
            )
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
        replicas = width // (self.tp * self.cp)
        check_divides(graph, "parallel", self.micro_batches, replicas, self._shares)
        rank, stages = self._rank_of_stage(), self._stage_of_op(problem)
        split, mesh, notes = self._split(problem, devices, replicas)
        zero: Zero = self.zero if replicas > 1 and not split else 0
        shard_group = self.shard_group if zero and self.shard_group != replicas else 0
        shares = () if split else (self._shares,) * len(rank)  # of divided ops the mesh has them
        whole = Schedule(
            all_reduce=self.all_reduce, zero=zero, shard_group=shard_group, shares=shares, offload=self.offload
        )  # fmt: skip
        schedule = WHOLE_BATCH if width == 1 and not self.offload else whole
        if len(rank) > 1 or self.micro_batches > 1 or self.recompute:
            recompute = tuple(range(len(rank))) if self.recompute else ()
            when = self.recompute_at if self.recompute else WHOLE_BATCH.recompute_at
            schedule = replace(
                whole, micro_batches=self.micro_batches, stages=stages if len(rank) > 1 else (), order=self._order,
                recompute=recompute, recompute_at=when,
            )  # fmt: skip
        of_rank = [devices[place * width : (place + 1) * width] for place in range(self.pp)]
        plan = Plan(tuple(of_rank[rank[stage]] for stage in stages), PROGRAM, schedule, split, mesh)
        if self._given.counts if self.stages else len(rank) > 1:
            notes = (*torn_blocks(graph, "parallel", stages), *notes)
        if not self.dp and width * self.pp < len(devices):  # as shares have it
            used = f"parallel: {width * self.pp} of {len(devices)} devices, as shares={self.shares} are of {replicas}"
            notes = (*notes, f"{used} replicas; give each device a share to use all.")
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
    def _degrees(self) -> list[str]:
        """Those by which ops are divided otherwise than replicas do, as they were given."""
        return [f"{knob}={getattr(self, knob)}" for knob in ("tp", "cp", "ep") if getattr(self, knob) > 1]

    @property
    def _stages(self) -> int:
        return self.pp * self.interleaved

    def _width(self, problem: Problem, devices: int) -> int:
        """How many devices each stage is on."""
        others, dp = self.tp * self.cp * self.pp, self.dp or len(self._shares)
        count = others * dp if dp else devices
        if count > devices or count % others:
            said = [f"dp={dp}"] * bool(dp) + [f"tp={self.tp}"] + [f"cp={self.cp}"] * (self.cp > 1)
            degrees = f"{', '.join(said)} and pp={self.pp}"
            besides = " besides CPUs" if devices < len(problem.cluster) else ""
            raise InputError(
                f"parallel: {degrees} take {others * max(dp, 1)} devices{'' if dp else ' for each replica'}, "
                f"cluster {problem.cluster.name!r} has {devices}{besides}; choose degrees whose product is "
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

    def _split(self, problem: Problem, devices: Sequence[int], replicas: int) -> Divided:
        """What each op of a stage divides, over which mesh, and how much of the work that is."""
        if not self._degrees:
            return (), (), ()
        if reason := why_undivided(problem, devices):
            raise InputError(f"parallel: ops cannot be divided with {self._degrees[0]}, since {reason}; leave it out")
        if replicas % self.ep:
            raise InputError(f"parallel: ep={self.ep} does not divide the {replicas} replicas; choose a divisor, or 1")
        shares = least_shares(self._shares)
        return Degrees(replicas, self.ep, self.cp, self.tp, self.sequence, self.zero == 3, shares).of_ops(problem.graph)

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
