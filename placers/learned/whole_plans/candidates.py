"""Candidates: the plans of all kinds that a problem may have, with what closed forms say of each; none is simulated.

    pipelines       the best by formula (`placers.pipelines.proposals`), one stage on replicas among them, then those of
                    different forms in other orders of passes, folded, and with stages that are divided inside
    replicas        that hold what belongs to weights in parts (ZeRO 1 to 3), in groups of a server, computing again
    degrees         tensor, sequence, context and expert parallelism, and the cuts of OptCNN
    placements      an expert's and the released policy's, each op on one device

A plan that needs work to be made, such as OptCNN's, is made only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from envs.expansion.pass_lists import WEIGHT_GRADIENT
from envs.pass_orders import PassOrder
from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import ONE_F_ONE_B, LayerPipeline, LayerStage
from envs.pipelines.shapes import shapes_of
from envs.plans.plan import Plan
from envs.plans.schedule import pass_order_of
from graphs.foundation import by_name
from graphs.foundation.by_name import Extension
from graphs.foundation.errors import InputError, UserCodeError
from graphs.op_groups.layer_names import unit_layers
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from placers.contract.placer import Placer
from placers.contract.whole_plans import accelerators, most_that_divide, why_placements_only
from placers.learned.whole_plans.pass_times import passes_of
from placers.pipelines.divided import DividedPipelines
from placers.pipelines.local_search import of_different_forms
from placers.pipelines.micro_batches import numbers_of
from placers.pipelines.offered_degrees import FULLY_SHARDED, offered_degrees
from placers.pipelines.pipeline_formula import PipelineFormula, sets_of
from placers.pipelines.proposals import Proposer
from placers.splits.stage_splits import SearchedSplits
from placers.splits.undivided import why_undivided

KINDS = (
    "replicas", "pipeline", "folded", "divided", "zero 1", "zero 2", "zero 3", "tensor parallel", "sequence parallel",
    FULLY_SHARDED, "context parallel", "expert parallel", "optcnn", "expert placement", "learned placement",
)  # fmt: skip
LAYERS = 64  # of which stages are made
PROPOSED = 32  # pipelines of the formula
FORMS = 6  # pipelines of different forms, which are also met in other orders and folded
ORDERS = tuple(map(pass_order_of, ("early_backward_b", "gpipe", "zb_h1", "zb_h2")))
ANY_SHAPE = (8, 2, 4)  # micro-batches, ranks and stages, of which each order takes some
FEW = 4  # numbers of micro-batches of replicas whose weights are held in parts
DIVIDED = 8  # pipelines whose stages are divided inside


@dataclass(frozen=True)
class Candidate:
    """A plan that a problem may have."""

    kind: str  # of KINDS
    pipeline: LayerPipeline  # the plan itself or, of a spec, what closed forms are of
    spec: str = ""  # of the placer that makes the plan, if it is no pipeline


@dataclass(frozen=True, eq=False)
class Candidates:
    """Those of one problem. Raises InputError for a problem for which only op placements make sense."""

    problem: Problem

    def __post_init__(self) -> None:
        if reason := why_placements_only(self.problem):
            name = self.problem.name
            raise InputError(f"a policy of whole plans has no plan for {name}: {reason}; take another placer")

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """Those that plans use."""
        return accelerators(self.problem.cluster)

    @cached_property
    def layers(self) -> Layers:
        """What stages are made of."""
        return Layers.of(self.problem, LAYERS, self.devices, unit_layers(self.problem.graph))

    @cached_property
    def formula(self) -> PipelineFormula:
        """What says seconds and memory of pipelines."""
        splits = None if why_undivided(self.problem, self.devices) else SearchedSplits(self.problem, self.devices)
        return PipelineFormula(LayerGrain(self.problem, self.layers, splits), self.devices)

    @cached_property
    def each(self) -> tuple[Candidate, ...]:
        """All of them; the first is the best pipeline by formula."""
        several = (*self._pipelines(), *self._in_parts(), *self._degrees())
        return tuple(dict.fromkeys(several))

    def plan(self, candidate: Candidate) -> Plan:
        """The plan of a candidate. Raises InputError for one that the problem does not take."""
        if candidate.spec:
            placer: Placer = by_name.build("placers", candidate.spec)
            return placer.place(self.problem, budget=0).plan
        return candidate.pipeline.plan(self.problem, self.layers, self.formula.grain.splits)

    def _pipelines(self) -> Iterator[Candidate]:
        proposer = Proposer(self.formula)
        proposed = [each.pipeline for each in proposer.best(PROPOSED)]
        found = list(proposed)
        for one in of_different_forms(proposed)[:FORMS]:
            if len(one.stages) > 1:
                found += [replace(one, order=order) for order in self._orders]
                found += proposer.folded(one) if self.problem.graph.is_training else []
            elif len(one.stages[0].devices) > 1:
                found.append(replace(one, rule=PROGRAM))
        for one in filter(self._has_passes, found):
            kind = "replicas" if len(one.stages) == 1 else "folded" if one.is_folded else "pipeline"
            yield Candidate(kind, one)
        if self.formula.grain.splits is not None:
            for number, one in enumerate(DividedPipelines(proposer).proposals()):
                if number < DIVIDED:
                    yield Candidate("divided", one)

    def _has_passes(self, one: LayerPipeline) -> bool:
        """Whether its order of passes takes its stages, devices and micro-batches."""
        if one.order == ONE_F_ONE_B:
            return True
        try:
            passes = passes_of(self.problem.cluster, one.order, sets_of(one), one.micro_batches, one.sharing)
        except UserCodeError:
            raise
        except InputError:
            return False
        return self._weight_gradients_apart or not (passes.kind == WEIGHT_GRADIENT).any()

    @cached_property
    def _weight_gradients_apart(self) -> bool:
        return self.layers.weight_gradients_apart(self.problem)

    @cached_property
    def _orders(self) -> tuple[Extension[PassOrder], ...]:
        if not self.problem.graph.is_training:
            return ()
        apart = self._weight_gradients_apart
        return tuple(order for order in ORDERS if shapes_of(order, *ANY_SHAPE, weight_gradients_apart=apart))

    def _in_parts(self) -> Iterator[Candidate]:
        """Replicas that hold in parts what belongs to weights."""
        problem = self.problem
        count = most_that_divide(problem.graph, len(self.devices))
        if count < 2 or not problem.graph.is_training:
            return
        for micro_batches in numbers_of(problem.graph.samples, count)[:FEW]:
            for again in (False, True):
                one = self._replicas(count, micro_batches, again=again)
                knobs = f"dp={count},micro_batches={micro_batches}{',recompute=true' * again}"
                for zero in (1, 2, 3):
                    yield Candidate(f"zero {zero}", one, f"parallel:{knobs},zero={zero}")

    def _degrees(self) -> Iterator[Candidate]:
        count = len(self.devices)
        one = self._replicas(most_that_divide(self.problem.graph, count), 1)
        for kind, spec in offered_degrees(self.problem).items():
            shards = int(by_name.parse(spec)[1].get("tp", 1))
            yield Candidate(kind, self._replicas(count, 1, shards=shards) if shards > 1 else one, spec)
        if not why_undivided(self.problem, self.devices):
            yield Candidate("optcnn", self._replicas(count, 1, shards=count), "optcnn")
        yield Candidate("expert placement", self._replicas(1, 1), "human_expert")
        yield Candidate("learned placement", self._replicas(1, 1), "default:samples=1")

    def _replicas(self, count: int, micro_batches: int, *, again: bool = False, shards: int = 1) -> LayerPipeline:
        """One stage on the first devices."""
        stage = LayerStage(0, len(self.layers), self.devices[:count], shards=shards)
        return LayerPipeline((stage,), micro_batches, ONE_F_ONE_B, (0,) if again else ())
