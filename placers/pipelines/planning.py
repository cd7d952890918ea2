"""The part of a planner that searches for pipelines: proposed by formula, judged by simulation, changed step by step.

The engine judges them op by op if the graph is small, else at the grain of stages; the best of these op by op. All that
are simulated op by op compete in a contest with the plans of others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from envs.objectives import is_static
from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline
from envs.pipelines.shapes import shapes_of
from envs.plans.plan import Plan
from envs.plans.schedule import pass_order_of
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from graphs.op_groups.layer_names import unit_layers
from graphs.problem import STEP_TIME, Problem
from graphs.runtime import PROGRAM
from placers.contract.whole_plans import accelerators
from placers.pipelines.any_layers_again import with_any_layers_again
from placers.pipelines.as_pipeline import as_pipeline
from placers.pipelines.budget import Spent
from placers.pipelines.contest import Contest, Contestant
from placers.pipelines.divided import DividedPipelines
from placers.pipelines.local_search import PipelineSearch, of_different_forms
from placers.pipelines.merit import INVALID
from placers.pipelines.moves import PipelineMoves
from placers.pipelines.notes import description
from placers.pipelines.pipeline_evaluator import OpEvaluator, PipelineEvaluator
from placers.pipelines.pipeline_formula import PipelineFormula
from placers.pipelines.proposals import IN_LESS_MEMORY, IN_MORE_MEMORY, V_SHAPED, Proposer
from placers.pipelines.refinement import finer, refined, refined_by_stages
from placers.pipelines.size import copies_of, is_large
from placers.splits.stage_splits import SearchedSplits
from placers.splits.undivided import why_undivided

OWN = "its own pipeline"
PROPOSED = 48  # pipelines that are judged by simulation before the search; ours
DIVIDED = 1 / 5  # of what is left then, at most, for pipelines whose stages are divided
NEAR = 1.1  # times the best plan's seconds: from divided stages, and of large problems, that take more is no search
BEST_DIVIDED = 4  # of these pipelines are simulated op by op
FEW_OPS = 1000  # of a graph that is simulated op by op at once: at the grain of stages it would hardly be faster
FEW_COPIES = 64 * FEW_OPS  # of its ops, in micro-batches and replicas, if these are simulated op by op at once
ROUNDS = 2  # of the search at the grain of stages; the later one begins with the best of that before
OP_BY_OP = 0.5  # of what is left, at most, for a search op by op after that
OPS_EACH, MOST_OPS = 5_000, 2e7  # copies of ops that may be simulated there: for each simulation, and in all
ANY_SHAPE = (8, 2, 4)  # micro-batches, ranks and stages, of which each order takes some
FORMS = 8  # pipelines of different forms of which other orders of passes and folded forms are tried
VERIFIED = 8  # pipelines of the search at the grain of stages that are simulated op by op, the best first
OPS_VERIFIED, FEWEST_VERIFIED = 3_000_000, 2  # copies of ops in all of these together, but for some of the best
MORE_IN_FLIGHT = 2  # pipelines that are simulated with more micro-batches in flight
FAR = 1.5  # times the best own pipeline's seconds, at the grain of stages: what is divided and takes more is left out
OF_DIVIDED = 5  # times as long as of others takes a copy of an op whose shards send each other parts, measured; ours
RULES = 4  # pipelines that are simulated with another order of ops
REFINED = 48  # simulations of moved cuts
OPS_REFINED = 4_000_000  # copies of ops that are simulated there op by op in all; more are at the grain of stages
MORE_REFINED = 4  # times as many at that grain


class PipelinePlanning:
    """What is known of pipelines of a problem, and their search."""

    def __init__(
        self, problem: Problem, contest: Contest, spent: Spent, seed: int,
        *, layers: int, micro_batches: int, split: bool,
    ) -> None:  # fmt: skip
        """The knobs are those of the planner."""
        self._problem, self._contest, self._spent, self._micro_batches = problem, contest, spent, micro_batches
        self.notes = list[str]()
        used, rank = accelerators(problem.cluster), unit_layers(problem.graph)
        self.layers = Layers.of(problem, layers, used, rank)
        self._fine = Layers.of(problem, problem.graph.num_units, used, rank)
        splits = SearchedSplits(problem, used) if split and not why_undivided(problem, used) else None
        self.proposer = Proposer(PipelineFormula(LayerGrain(problem, self.layers, splits), used), micro_batches)
        self._evaluator = PipelineEvaluator(self.proposer.grain, spent, latency=self._by_latency())
        self.op_by_op = OpEvaluator(self.proposer.grain, spent, self._simulated_if_near)
        self._pipelines = dict[Plan, LayerPipeline]()
        self._moves, self._generator = self._possible_moves(), np.random.default_rng(seed)
        self._chosen: LayerPipeline | None = None  # the best that was simulated op by op
        self._like = dict[LayerPipeline, LayerPipeline]()  # of those with any layers again, what they were made of

    def described(self) -> Iterator[str]:
        """What the pipeline is, if it won."""
        best = self._contest.best
        if best is not None and best.who == OWN and self._chosen is not None:
            like = self._like.get(self._chosen)
            spans = [] if like is None else self._chosen.again(self.layers)
            pipeline = like or self._chosen
            yield description(pipeline, self.proposer.formula.estimates(pipeline)[0], spans)

    def proposals(self) -> list[LayerPipeline]:
        """The best pipelines by formula, at least one."""
        found = self.proposer.best(PROPOSED, lambda: self._spent.stopped)
        return [each.pipeline for each in found]

    def _possible_moves(self) -> PipelineMoves:
        graph, devices = self._problem.graph, self.proposer.devices
        apart = self.layers.weight_gradients_apart(self._problem)
        known = map(pass_order_of, by_name.built_in("envs.pass_orders") if graph.is_training else ())
        orders = tuple(each for each in known if shapes_of(each, *ANY_SHAPE, weight_gradients_apart=apart))
        self._has_more_in_flight = IN_MORE_MEMORY in [order.name for order in orders]
        orders = tuple(each for each in orders if each.name not in (*IN_LESS_MEMORY, IN_MORE_MEMORY))  # tried later
        moves = PipelineMoves.of(devices.used, devices.kind, self.proposer.server, graph.samples, self._micro_batches)
        return replace(moves, orders=orders, recompute=graph.is_training)

    def _by_latency(self) -> bool:
        """Whether pipelines are judged by latency at the grain of stages; by the step time, if not."""
        objective = self._problem.objective
        if objective.name not in (STEP_TIME.name, "throughput", "latency") and not is_static(self._problem):
            self.notes.append(f"planner: pipelines are searched for by step time, and compared by '{objective}'.")
        return objective.name == "latency"

    def divided(self) -> list[LayerPipeline]:
        """The best pipelines whose stages are divided, if they are near the best plan; these are then searched from."""
        grain, evaluator, spent = self.proposer.grain, self._evaluator, self._spent
        until = spent.simulations + int(DIVIDED * spent.left)
        if is_large(self._problem):
            return []
        divided, judged = DividedPipelines(self.proposer), list[LayerPipeline]()
        for one in divided.proposals() if grain.splits is not None else ():
            for each in (one, replace(one, recompute=tuple(range(len(one.stages))))):
                if spent.simulations < until and evaluator.merit(each) < INVALID:
                    judged.append(each)
                if not evaluator.merit(one).lacking or not self._moves.recompute:
                    break
        if not judged or min(map(evaluator.merit, judged)) > self._contest.near(NEAR):
            return []
        moves = replace(self._moves, widths=divided.widths)
        proposer = self.proposer
        PipelineSearch(evaluator, moves, proposer.formula, self._generator).run(judged, until)
        found = [one for one in evaluator.ranked() if one.is_divided][:BEST_DIVIDED]
        for one in found:
            self.simulated(one)
        return found

    def search(self, proposals: list[LayerPipeline]) -> None:
        """Search at the grain of stages, and from the best of what is found there op by op; or op by op at once."""
        graph, spent = self._problem.graph, self._spent
        others = (as_pipeline(self._problem, self.layers, entry.plan) for entry in self._contest.others(OWN))
        starts = [*(one for one in others if one is not None), *proposals]
        copies = self._copies(proposals[0])
        if len(graph) > FEW_OPS or copies > FEW_COPIES:
            until = spent.budget - min(self._affordable(copies) + self._refined(copies), int(OP_BY_OP * spent.left))
            until = min(until, spent.simulations + self._evaluator.affordable(proposals[0]))
            for number in range(ROUNDS):
                left = until - spent.simulations
                self._search_from(self._evaluator, starts, spent.simulations + left // (ROUNDS - number))
                self._verify()
                if is_large(self._problem) and self._is_far_behind():
                    return
                starts = self._evaluator.ranked()[:VERIFIED]
                copies = max(map(self._copies, starts), default=copies)
            starts += [self._pipelines[entry.plan] for entry in [self._contest.entries.get(OWN)] if entry]
        most = min(self._affordable(copies), spent.left)
        later = min(max(self._refined(copies), MORE_IN_FLIGHT), most // 4)
        self._search_from(self.op_by_op, starts, spent.simulations + most - later)
        self._with_more_in_flight()
        self._best_rule()
        self._with_any_layers_again()
        entry = self._contest.entries.get(OWN)
        if entry is not None:
            self._chosen = self._pipelines[entry.plan]
            if len(self._fine) > len(self.layers):
                self._refine(finer(self._chosen, self.layers, self._fine), copies_of(entry.plan))

    def _refined(self, copies: int) -> int:
        """How many pipelines of so many copies of ops are judged with moved cuts."""
        return REFINED * (len(self._fine) > len(self.layers)) * (MORE_REFINED if copies * REFINED > OPS_REFINED else 1)

    def _refine(self, pipeline: LayerPipeline, copies: int) -> None:
        """Move the cuts of the best pipeline unit by unit: op by op or, of very many copies, at the grain of stages."""
        problem, splits = self._problem, self.proposer.grain.splits

        def offered(one: LayerPipeline) -> Contestant | None:
            return self._contest.offer(OWN, one.plan(problem, self._fine, splits))

        if copies * REFINED <= OPS_REFINED:
            refined(pipeline, lambda one: getattr(offered(one), "merit", INVALID), REFINED)
            return
        evaluator = PipelineEvaluator(LayerGrain(problem, self._fine, splits), self._spent, latency=self._by_latency())
        evaluator.memory_factor = self._evaluator.memory_factor
        refined_by_stages(pipeline, evaluator, offered, self._refined(copies))

    def _copies(self, pipeline: LayerPipeline) -> int:
        """Of ops, in micro-batches and replicas; as many as take that long, if stages are divided inside."""
        copies = copies_of(pipeline.plan(self._problem, self.layers, self.proposer.grain.splits))
        return copies * OF_DIVIDED if pipeline.is_divided else copies

    def _affordable(self, copies: int) -> int:
        """How many plans of so many copies of ops may be simulated op by op in all."""
        if len(self._problem.graph) <= FEW_OPS and copies <= FEW_COPIES:
            return self._spent.budget
        return int(min(OPS_EACH * self._spent.budget, MOST_OPS)) // copies

    def _search_from(self, evaluator: PipelineEvaluator, starts: Sequence[LayerPipeline], until: int) -> None:
        """Search from the best of these pipelines, and of their other orders of passes and folded forms."""
        proposer, spent = self.proposer, self._spent
        search = PipelineSearch(evaluator, self._moves, proposer.formula, self._generator)
        judged = search.judged(starts, spent.simulations + (until - spent.simulations) // 3)
        found = dict.fromkeys(judged)
        for one in of_different_forms(judged)[:FORMS]:
            orders = self._moves.orders if len(one.stages) > 1 else ()
            found |= dict.fromkeys(replace(one, order=order) for order in orders)
            found |= dict.fromkeys(folded for folded in proposer.folded(one) if folded.order in orders)
        judged = search.judged(found, spent.simulations + (until - spent.simulations) // 2)
        less = list(self._in_less_memory(evaluator, judged))
        judged = search.judged([*judged, *less], spent.simulations + (until - spent.simulations) // 2)
        search.run(judged, until)

    def _in_less_memory(self, evaluator: PipelineEvaluator, judged: list[LayerPipeline]) -> Iterator[LayerPipeline]:
        """Pipelines in the shape of a V, where they lack memory with fewer micro-batches in flight."""
        for one in dict.fromkeys(replace(each, recompute=()) for each in judged if each.order == V_SHAPED[0]):
            if 0 < evaluator.merit(one).lacking < INVALID.lacking:
                yield from self.proposer.in_less_memory(one, evaluator.lacking(one))

    def _verify(self) -> None:
        """Simulate the best pipelines op by op, and see how much memory they then need."""
        evaluator, ratios = self._evaluator, list[float]()
        ranked = evaluator.ranked()[:VERIFIED]
        most = max(OPS_VERIFIED // max(map(self._copies, ranked), default=1), FEWEST_VERIFIED)
        for pipeline in ranked[:most]:
            entry = self.simulated(pipeline)
            if entry is not None:
                ratios.append(evaluator.memory_ratio(pipeline, entry))
        evaluator.memory_factor = max(ratios, default=1.0)

    def _is_far_behind(self) -> bool:
        """Whether the best pipeline so far, op by op, takes longer than what is near the best plan of others."""
        entry = self._contest.entries.get(OWN)
        return entry is not None and entry.merit > self._contest.near(NEAR)

    def _with_more_in_flight(self) -> None:
        """Simulate the best pipelines with twice as many micro-batches in flight, which hide transfers."""
        is_alone = (one for one in self.op_by_op.ranked() if len(one.stages) > 1 and not one.is_folded)
        for pipeline in islice(is_alone, MORE_IN_FLIGHT if self._has_more_in_flight else 0):
            self.op_by_op.merit(replace(pipeline, order=IN_MORE_MEMORY))

    def _with_any_layers_again(self) -> None:
        """Simulate pipelines in which each device computes those layers again that cost it least."""
        op_by_op, entry = self.op_by_op, self._contest.entries.get(OWN)
        if entry is None or not self._moves.recompute:
            return

        def judged(pipeline: LayerPipeline) -> tuple[float, Floats] | None:
            merit = op_by_op.merit(pipeline)
            over = op_by_op.peak_bytes(pipeline) - self._problem.cluster.memory_bytes if merit < INVALID else None
            return None if over is None else (merit.value, over)

        best = np.inf if entry.merit.lacking else entry.merit.value
        self._like = with_any_layers_again(op_by_op.ranked(), best, self.proposer.formula, judged)

    def _best_rule(self) -> None:
        """Simulate the best pipelines in PyTorch's order too, in which replicas add up gradients of weights earlier."""
        for pipeline in self.op_by_op.ranked()[:RULES]:
            if any(len(stage.devices) > 1 for stage in pipeline.stages):
                self.simulated(replace(pipeline, rule=PROGRAM))

    def simulated(self, pipeline: LayerPipeline) -> Contestant | None:
        """Simulate a pipeline op by op, in the contest; None if it is not valid for the problem."""
        try:
            plan = pipeline.plan(self._problem, self.layers, self.proposer.grain.splits)
            self._pipelines[plan] = pipeline
            return self._contest.offer(OWN, plan)
        except InputError:  # what is checked op by op alone
            self._evaluator.refuse(pipeline)
            return None

    def _simulated_if_near(self, pipeline: LayerPipeline) -> Contestant | None:
        """The same, but None for divided stages of many ops that take far longer than the best at their grain."""
        entry = self._contest.entries.get(OWN)
        if pipeline.is_divided and entry is not None and len(self._problem.graph) > FEW_OPS:
            best, own = map(self._evaluator.merit, (self._pipelines[entry.plan], pipeline))
            if not best.lacking and best.value * FAR < own.value < INVALID.value:
                return None
        return self.simulated(pipeline)
