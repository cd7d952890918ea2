"""The planner: pipelines on any devices, proposed by formula and chosen by simulation, or the best of other placers.

Devices may differ in speed, memory and links, and may be on several servers. A formula proposes stages, their devices,
micro-batches and recomputation; the engine judges the best, op by op if the graph is small, else at the grain of
stages; and a local search improves them. Pipelines are compared with a search for an op placement, one device, data
parallelism, also fully sharded, a human expert, the equal split in GPipe's order and in 1F1B, and the plans of DAPPLE,
Black GPipe and PipeDream, these with a flush; and, if the graph says what its ops compute, with the splits of OptCNN
and of tensor parallelism, and with stages that are divided inside. The best of all is the result; a note says which.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar

import numpy as np

from envs.objectives import is_static
from envs.pipelines.grain.layer_grain import LayerGrain
from envs.pipelines.layers import Layers
from envs.pipelines.pipeline import LayerPipeline
from envs.pipelines.shapes import shapes_of
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import pass_order_of
from graphs.foundation import by_name
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.op_groups.layer_names import unit_layers
from graphs.problem import STEP_TIME, Problem
from graphs.runtime import PROGRAM
from placers.annealing import Annealing
from placers.contract.whole_plans import accelerators, check_divides, why_placements_only
from placers.default import RELEASED
from placers.pipelines.as_pipeline import as_pipeline, proposed_by
from placers.pipelines.budget import Spent, spending
from placers.pipelines.contest import Contest, Contestant
from placers.pipelines.divided import DividedPipelines
from placers.pipelines.local_search import PipelineSearch, of_different_forms
from placers.pipelines.merit import INVALID
from placers.pipelines.moves import PipelineMoves
from placers.pipelines.notes import description, said_of
from placers.pipelines.pipeline_evaluator import OpEvaluator, PipelineEvaluator
from placers.pipelines.pipeline_formula import PipelineFormula
from placers.pipelines.proposals import IN_LESS_MEMORY, IN_MORE_MEMORY, V_SHAPED, Proposer
from placers.pipelines.refinement import finer, refined, refined_by_stages
from placers.pipelines.rivals import OF_SPLITS, RIVALS, SHARDED, Rival, of_degrees
from placers.pipelines.room import ROOM, check_room, said_of_room, with_room
from placers.pipelines.size import copies_of
from placers.split_search import SplitSearch
from placers.splits.stage_splits import SearchedSplits
from placers.splits.undivided import why_undivided

BY_REQUEST = True  # it divides the batch as it likes, and compares all others itself

OWN, SEARCHED = "its own pipeline", "an op placement found by search"
PROPOSED = 48  # pipelines that are judged by simulation before the search; ours
LEARNED = 8  # of a policy, if one proposes, before these; ours
PLACEMENTS = 1 / 4  # of the simulations, for the search for an op placement
HOPELESS = 1 / 20  # of them, if the rivals' placements take many times as long as the best plan
MANY = 4.0  # times
DIVIDED = 1 / 5  # of what is left then, at most, for pipelines whose stages are divided
NEAR = 1.1  # times the best plan's seconds: what takes more, at the grain of stages or as a split, is not searched from
SPLITS = 1 / 8  # of the simulations left, at most, for a search for splits
FEWEST_SPLITS, MOST_SPLITS = 8, 5_000_000  # simulations that are worth it; copies of ops that may be simulated in all
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
RULES = 4  # pipelines that are simulated with another order of ops
REFINED = 48  # simulations of moved cuts
OPS_REFINED = 4_000_000  # copies of ops that are simulated there op by op in all; more are at the grain of stages
MORE_REFINED = 4  # times as many at that grain


@dataclass(frozen=True)
class Planner(Named):
    """Any mixture of stages, replicas, micro-batches, orders of passes and recomputation."""

    divides_batch: ClassVar[bool] = True

    layers: int = 128
    """The most layers that stages are made of; where there are more units, several together are one."""
    micro_batches: int = 0
    """Equal parts of the batch; 0 for as many as are best. Data parallelism and one device choose theirs."""
    split: bool = True
    """Whether stages may be divided inside."""
    policy: str = "default"
    """A learned placer whose placement joins the starts of the search for an op placement; empty for none."""
    whole_plans: str = ""
    """A placer whose pipelines join what the formula proposes, such as "whole_plans"; empty for none."""
    placements: int = 0
    """Simulations of the search for an op placement, in addition to the budget; 0 for a share of the budget."""
    room: float = ROOM
    """Of each device's memory, left free for what is kept of requests, such as KV caches, where a plan is for these."""

    def __post_init__(self) -> None:
        for knob, least in (("layers", 1), ("placements", 0)):
            if getattr(self, knob) < least:
                raise InputError(f"planner: {knob} is {getattr(self, knob)}; expected at least {least}")
        check_room(self.room)

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The best plan in at most `budget` simulations, at whatever grain, or until Ctrl-C.

        With `placements` it is not behind `annealing:policy=default` with as many simulations. Raises
        InputError for micro-batches that do not divide a step's samples.
        """
        if self.micro_batches:
            check_divides(problem.graph, "planner", self.micro_batches, 1)
        with spending(budget + (self.placements if budget else 0), "planning") as spent:
            planning = _Planning(self, problem, seed, spent)
            planning.run()
            return planning.result(stopped=spent.stopped)

    def rivals(self) -> list[Rival]:
        """The planners whose plans are compared."""
        return [Rival(spec) for spec in RIVALS]

    def splitting_rivals(self) -> list[Rival]:
        """Those of plans that divide ops by other indices than the batch."""
        return [Rival(spec) for spec in OF_SPLITS] if self.split else []


build = Planner


class _Planning:
    """The planning of one problem."""

    def __init__(self, planner: Planner, given: Problem, seed: int, spent: Spent) -> None:
        problem = with_room(given, planner.room)
        self._planner, self._problem, self._seed, self._spent = planner, problem, seed, spent
        self._contest = Contest(problem, spent)
        self._reason = why_placements_only(problem)
        self._notes = [said_of_room(planner.room)] if problem is not given else []
        self._first: Plan | None = None  # without any simulation
        self._micro_batches = 0  # of the pipeline that is proposed first
        self._chosen: LayerPipeline | None = None  # the best that was simulated op by op

    def run(self) -> None:
        """Spend the simulations."""
        rivals, placements = self._planner.rivals(), self._planner.placements
        if self._spent.left:
            self._search_placement(placements)
        if self._reason:
            self._notes.append(f"planner: op placements only, since {self._reason}.")
            self._compare(rivals)
            self._search_placement(0 if placements else self._spent.left - 1)
            return
        self._set_up()
        proposals = self._proposer.best(PROPOSED, lambda: self._spent.stopped)
        self._first = proposals[0].pipeline.plan(self._problem, self._layers)
        self._micro_batches = proposals[0].pipeline.micro_batches
        self._simulated(proposals[0].pipeline)
        undivided = why_undivided(self._problem, accelerators(self._problem.cluster))
        splitting = [] if undivided else self._planner.splitting_rivals()
        self._compare([*rivals, *splitting, *(of_degrees(self._problem) if splitting else ()), *map(Rival, SHARDED)])
        self._search_placement(0 if placements else int(self._share_of_placements() * self._spent.left))
        self._search_splits()
        learned = proposed_by(self._planner.whole_plans, self._problem, self._layers, LEARNED, self._seed)
        self._search_pipelines([*self._divided(), *learned, *(proposal.pipeline for proposal in proposals)])

    def result(self, *, stopped: bool) -> PlacerResult:
        """The best plan, and how it was found."""
        best, planner = self._contest.best, self._planner
        if stopped:
            done = f"{self._spent.simulations} of {self._spent.budget} simulations"
            self._notes.append(f"planner: stopped by Ctrl-C after {done}.")
        if best is None:
            plan = self._first or by_name.build("placers", "single_device").place(self._problem, budget=0).plan
            self._notes.append("planner: nothing was simulated; this is the best plan by formula.")
            return PlacerResult(plan, planner.name, self._seed, self._spent.simulations, notes=tuple(self._notes))
        notes = [*said_of(self._contest, self._problem), *self._described(), *self._notes]
        return PlacerResult(
            best.plan, planner.name, self._seed, self._spent.simulations, tuple(self._contest.curve), tuple(notes)
        )

    def _described(self) -> Iterator[str]:
        """What the pipeline is, if it won."""
        best, own = self._contest.best, self._contest.entries.get(OWN)
        if best is not None and own is not None and best.who == OWN and self._chosen is not None:
            yield description(self._chosen, self._proposer.formula.estimates(self._chosen)[0])

    # ---- other planners ----------------------------------------------------------------------------------------------

    def _compare(self, rivals: list[Rival]) -> None:
        missed = list[str]()
        for rival in rivals:
            if self._spent.left:
                rival.compared(self._contest, self._seed, self._planner.micro_batches, self._micro_batches)
            else:
                missed.append(rival.placer(self._planner.micro_batches).name)
        if missed:
            self._notes.append(f"planner: no simulations were left to compare {', '.join(missed)}.")

    def _share_of_placements(self) -> float:
        """Of the simulations, for the search for an op placement."""
        known = (entry.merit for entry in self._contest.entries.values() if entry.plan.is_placement)
        return PLACEMENTS if min(known, default=INVALID) <= self._contest.near(MANY) else HOPELESS

    def _search_placement(self, budget: int) -> None:
        """Search for an op placement, from where this does not stop for Ctrl-C alone."""
        if budget < 1:
            return
        policy = self._planner.policy
        if policy == "default" and not (RELEASED / "meta.json").is_file():
            policy = ""
        search = Annealing(policy=policy).begin(self._problem, self._seed, budget)
        evaluations = search.evaluations
        seen = 0
        while True:
            self._spent.add(evaluations.simulations - seen)
            seen = evaluations.simulations
            if seen >= budget or not self._spent.left:
                break
            search.step(0.0, budget - seen)
        plan = Plan.of_units(self._problem, evaluations.best, order=evaluations.order)
        self._contest.offer(SEARCHED, plan, even_if_stopped=True)

    def _search_splits(self) -> None:
        """Search for splits, if those that are compared are near the best plan."""
        search, contest = SplitSearch(), self._contest
        entries = [contest.entries.get(rival.spec) for rival in self._planner.splitting_rivals()]
        near = [each for each in entries if each is not None and each.merit <= contest.near(NEAR)]
        budget = min([int(SPLITS * self._spent.left), *(MOST_SPLITS // copies_of(each.plan) for each in near)])
        if near and budget > FEWEST_SPLITS:
            contest.compare(search.name, search, self._seed, budget)

    # ---- pipelines ---------------------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        problem = self._problem
        used, rank = accelerators(problem.cluster), unit_layers(problem.graph)
        self._layers = Layers.of(problem, self._planner.layers, used, rank)
        self._fine = Layers.of(problem, problem.graph.num_units, used, rank)
        splits = SearchedSplits(problem, used) if self._planner.split and not why_undivided(problem, used) else None
        self._proposer = Proposer(
            PipelineFormula(LayerGrain(problem, self._layers, splits), used), self._planner.micro_batches
        )
        self._evaluator = PipelineEvaluator(self._proposer.grain, self._spent, latency=self._by_latency())
        self._exact = OpEvaluator(self._proposer.grain, self._spent, self._simulated)
        self._pipelines = dict[Plan, LayerPipeline]()
        self._moves, self._generator = self._possible_moves(), np.random.default_rng(self._seed)

    def _possible_moves(self) -> PipelineMoves:
        graph, devices = self._problem.graph, self._proposer.devices
        apart = self._layers.weight_gradients_apart(self._problem)
        known = map(pass_order_of, by_name.built_in("envs.pass_orders") if graph.is_training else ())
        orders = tuple(each for each in known if shapes_of(each, *ANY_SHAPE, weight_gradients_apart=apart))
        self._has_more_in_flight = IN_MORE_MEMORY in [order.name for order in orders]
        orders = tuple(each for each in orders if each.name not in (*IN_LESS_MEMORY, IN_MORE_MEMORY))  # tried later
        moves = PipelineMoves.of(
            devices.used, devices.kind, self._proposer.server, graph.samples, self._planner.micro_batches
        )
        return replace(moves, orders=orders, recompute=graph.is_training)

    def _by_latency(self) -> bool:
        """Whether pipelines are judged by latency at the grain of stages; by the step time, if not."""
        objective = self._problem.objective
        if objective.name not in (STEP_TIME.name, "throughput", "latency") and not is_static(self._problem):
            self._notes.append(f"planner: pipelines are searched for by step time, and compared by '{objective}'.")
        return objective.name == "latency"

    def _divided(self) -> list[LayerPipeline]:
        """The best pipelines whose stages are divided, if they are near the best plan; these are then searched from."""
        grain, evaluator, spent = self._proposer.grain, self._evaluator, self._spent
        until = spent.simulations + int(DIVIDED * spent.left)
        divided, judged = DividedPipelines(self._proposer), list[LayerPipeline]()
        for one in divided.proposals() if grain.splits is not None else ():
            for each in (one, replace(one, recompute=tuple(range(len(one.stages))))):
                if spent.simulations < until and evaluator.merit(each) < INVALID:
                    judged.append(each)
                if not evaluator.merit(one).lacking or not self._moves.recompute:
                    break
        if not judged or min(map(evaluator.merit, judged)) > self._contest.near(NEAR):
            return []
        moves = replace(self._moves, widths=divided.widths)
        proposer = self._proposer
        PipelineSearch(evaluator, moves, proposer.formula, self._generator).run(judged, until)
        found = [one for one in evaluator.ranked() if one.is_divided][:BEST_DIVIDED]
        for one in found:
            self._simulated(one)
        return found

    def _search_pipelines(self, proposals: list[LayerPipeline]) -> None:
        """Search at the grain of stages, and from the best of what is found there op by op; or op by op at once."""
        graph, spent = self._problem.graph, self._spent
        others = (as_pipeline(self._problem, self._layers, entry.plan) for entry in self._contest.others(OWN))
        starts = [*(one for one in others if one is not None), *proposals]
        copies = self._copies(proposals[0])
        if len(graph) > FEW_OPS or copies > FEW_COPIES:
            until = spent.budget - min(self._affordable(copies) + self._refined(copies), int(OP_BY_OP * spent.left))
            until = min(until, spent.simulations + self._evaluator.affordable(proposals[0]))
            for number in range(ROUNDS):
                left = until - spent.simulations
                self._search_from(self._evaluator, starts, spent.simulations + left // (ROUNDS - number))
                self._verify()
                starts = self._evaluator.ranked()[:VERIFIED]
                copies = max(map(self._copies, starts), default=copies)
            starts += [self._pipelines[entry.plan] for entry in [self._contest.entries.get(OWN)] if entry]
        most = min(self._affordable(copies), spent.left)
        later = min(max(self._refined(copies), MORE_IN_FLIGHT), most // 4)
        self._search_from(self._exact, starts, spent.simulations + most - later)
        self._with_more_in_flight()
        self._best_rule()
        entry = self._contest.entries.get(OWN)
        if entry is not None:
            self._chosen = self._pipelines[entry.plan]
            if len(self._fine) > len(self._layers):
                self._refine(finer(self._chosen, self._layers, self._fine), copies_of(entry.plan))

    def _refined(self, copies: int) -> int:
        """How many pipelines of so many copies of ops are judged with moved cuts."""
        return REFINED * (len(self._fine) > len(self._layers)) * (MORE_REFINED if copies * REFINED > OPS_REFINED else 1)

    def _refine(self, pipeline: LayerPipeline, copies: int) -> None:
        """Move the cuts of the best pipeline unit by unit: op by op or, of very many copies, at the grain of stages."""
        problem, splits = self._problem, self._proposer.grain.splits

        def offered(one: LayerPipeline) -> Contestant | None:
            return self._contest.offer(OWN, one.plan(problem, self._fine, splits))

        if copies * REFINED <= OPS_REFINED:
            refined(pipeline, lambda one: getattr(offered(one), "merit", INVALID), REFINED)
            return
        evaluator = PipelineEvaluator(LayerGrain(problem, self._fine, splits), self._spent, latency=self._by_latency())
        evaluator.memory_factor = self._evaluator.memory_factor
        refined_by_stages(pipeline, evaluator, offered, self._refined(copies))

    def _copies(self, pipeline: LayerPipeline) -> int:
        """Of ops, in micro-batches and replicas."""
        return copies_of(pipeline.plan(self._problem, self._layers, self._proposer.grain.splits))

    def _affordable(self, copies: int) -> int:
        """How many plans of so many copies of ops may be simulated op by op in all."""
        if len(self._problem.graph) <= FEW_OPS and copies <= FEW_COPIES:
            return self._spent.budget
        return int(min(OPS_EACH * self._spent.budget, MOST_OPS)) // copies

    def _search_from(self, evaluator: PipelineEvaluator, starts: Sequence[LayerPipeline], until: int) -> None:
        """Search from the best of these pipelines, and of their other orders of passes and folded forms."""
        proposer, spent = self._proposer, self._spent
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
                yield from self._proposer.in_less_memory(one, evaluator.lacking(one))

    def _verify(self) -> None:
        """Simulate the best pipelines op by op, and see how much memory they then need."""
        evaluator, ratios = self._evaluator, list[float]()
        ranked = evaluator.ranked()[:VERIFIED]
        most = max(OPS_VERIFIED // max(map(self._copies, ranked), default=1), FEWEST_VERIFIED)
        for pipeline in ranked[:most]:
            entry = self._simulated(pipeline)
            if entry is not None:
                ratios.append(evaluator.memory_ratio(pipeline, entry))
        evaluator.memory_factor = max(ratios, default=1.0)

    def _with_more_in_flight(self) -> None:
        """Simulate the best pipelines with twice as many micro-batches in flight, which hide transfers."""
        is_alone = (one for one in self._exact.ranked() if len(one.stages) > 1 and not one.is_folded)
        for pipeline in islice(is_alone, MORE_IN_FLIGHT if self._has_more_in_flight else 0):
            self._exact.merit(replace(pipeline, order=IN_MORE_MEMORY))

    def _best_rule(self) -> None:
        """Simulate the best pipelines in PyTorch's order too, in which replicas add up gradients of weights earlier."""
        for pipeline in self._exact.ranked()[:RULES]:
            if any(len(stage.devices) > 1 for stage in pipeline.stages):
                self._simulated(replace(pipeline, rule=PROGRAM))

    def _simulated(self, pipeline: LayerPipeline) -> Contestant | None:
        try:
            plan = pipeline.plan(self._problem, self._layers, self._proposer.grain.splits)
            self._pipelines[plan] = pipeline
            return self._contest.offer(OWN, plan)
        except InputError:  # what is checked op by op alone
            self._evaluator.refuse(pipeline)
            return None
