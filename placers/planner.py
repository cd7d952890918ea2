"""The planner: pipelines on any devices, proposed by formula and chosen by simulation, or the best of other placers.

Devices may differ in speed, memory and links, and may be on several servers. A formula proposes stages, their devices,
micro-batches and recomputation; the engine judges the best, op by op if the graph is small, else at the grain of
stages; and a local search improves them. Pipelines are compared with a search for an op placement, one device, data
parallelism, also fully sharded, a human expert, the equal split in GPipe's order and in 1F1B, and the plans of DAPPLE,
Black GPipe and PipeDream, these with a flush; and, if the graph says what its ops compute, with the splits of OptCNN
and of tensor parallelism, and with stages that are divided inside. The best of all is the result; a note says which.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from envs.pipelines.pipeline import LayerPipeline
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.running.plan_rules import is_run
from graphs.foundation import by_name
from graphs.foundation.by_name import Named
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.annealing import Annealing
from placers.contract.whole_plans import Proposes, accelerators, check_divides, why_placements_only
from placers.default import RELEASED
from placers.pipelines.budget import Spent, spending
from placers.pipelines.contest import Contest, Contestant
from placers.pipelines.merit import INVALID
from placers.pipelines.micro_batches import least_micro_batches
from placers.pipelines.notes import said_of
from placers.pipelines.planning import PipelinePlanning
from placers.pipelines.rivals import OF_SPLITS, RIVALS, SHARDED, Rival, of_degrees, of_offload, takes_minutes
from placers.pipelines.room import ROOM, check_room, said_of_room, with_room
from placers.pipelines.size import copies_of, is_large, said_of_large
from placers.split_search import RIVALS as OF_SEARCH
from placers.split_search import SplitSearch
from placers.splits.undivided import why_undivided

BY_REQUEST = True  # it divides the batch as it likes, and compares all others itself

SEARCHED = "an op placement found by search"
LEARNED = 4  # plans of a policy, if one proposes, that are simulated before all others; ours
PLACEMENTS = 1 / 4  # of the simulations, for the search for an op placement
HOPELESS = 1 / 20  # of them, if the rivals' placements take many times as long as the best plan
MANY = 4.0  # times
NEAR = 1.05  # times the best plan's seconds: splits that take more are not searched from: 4% is the most that it gave
SPLITS = 1 / 8  # of the simulations left, at most, for a search for splits
FEWEST_SPLITS, MOST_SPLITS = 8, 5_000_000  # simulations that are worth it; copies of ops that may be simulated in all


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
    """A placer whose best proposals begin the search, such as "whole_plans:checkpoint=RUN"; empty for none."""
    runnable: bool = False
    """Whether the plan is to be one that processes run, as `placelab run` starts them, though others may be faster."""
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
        self._notes = [said_of_room(planner.room)] if problem is not given else []
        self._for_splits = 0  # simulations that are kept for a search for splits
        self._first: Plan | None = None  # without any simulation
        self._proposals = list[LayerPipeline]()
        self._pipelines: PipelinePlanning | None = None  # unless the problem takes op placements only

    def run(self) -> None:
        """Spend the simulations, step by step."""
        reason = why_placements_only(self._problem)
        if reason:
            self._notes.append(f"planner: op placements only, since {reason}.")
        else:
            knobs, known = self._planner, (self._problem, self._contest, self._spent, self._seed)
            self._pipelines = PipelinePlanning(
                *known, layers=knobs.layers, micro_batches=knobs.micro_batches, split=knobs.split
            )
            self._notes += self._pipelines.notes
            self._notes += [said_of_large(self._problem)] if is_large(self._problem) else []
        for step in ONLY_PLACEMENTS if reason else STEPS:
            step(self)

    def result(self, *, stopped: bool) -> PlacerResult:
        """The best plan, and how it was found."""
        best, planner = self._contest.best, self._planner
        runnable = self._runnable()
        if stopped:
            done = f"{self._spent.simulations} of {self._spent.budget} simulations"
            self._notes.append(f"planner: stopped by Ctrl-C after {done}.")
        if best is None:
            plan = self._first or by_name.build("placers", "single_device").place(self._problem, budget=0).plan
            self._notes.append("planner: nothing was simulated; this is the best plan by formula.")
            return PlacerResult(plan, planner.name, self._seed, self._spent.simulations, notes=tuple(self._notes))
        of_pipelines = [] if self._pipelines is None else self._pipelines.described()
        notes = [*said_of(self._contest, self._problem), *of_pipelines, *self._notes]
        if planner.runnable and runnable is None and not best.merit.lacking:
            notes.append("planner: none of the plans that fit is one that processes run; this is the best of all.")
        plan = runnable if planner.runnable and runnable else best.plan
        return PlacerResult(
            plan, planner.name, self._seed, self._spent.simulations, tuple(self._contest.curve), tuple(notes),
            compared={who: each.plan for who, each in self._contest.entries.items()},
            runnable=None if runnable == plan else runnable,
        )  # fmt: skip

    def _runnable(self) -> Plan | None:
        """The best plan that processes run; None of forward passes, which they do not run."""
        if not self._problem.graph.is_training:
            return None
        return next((plan for plan in self._contest.fitting() if is_run(self._problem, plan)), None)

    # ---- steps -------------------------------------------------------------------------------------------------------

    def search_asked_placements(self) -> None:
        """Search for an op placement in as many simulations as the planner was asked to."""
        if self._spent.left:
            self._search_placement(self._planner.placements)

    def ask_policy(self) -> None:
        """Simulate what a policy proposes, if one is named. Raises InputError for a placer that proposes nothing."""
        knobs = self._planner
        if not knobs.whole_plans:
            return
        placer = by_name.build("placers", knobs.whole_plans)
        if not isinstance(placer, Proposes):
            name = knobs.whole_plans
            raise InputError(f"planner: {name!r} proposes no whole plans; give `whole_plans` a placer that does")
        for plan in placer.proposals(self._problem, LEARNED, self._seed):
            is_other = knobs.micro_batches and plan.schedule.micro_batches != knobs.micro_batches
            if not is_other and (knobs.split or not plan.split):
                self._contest.offer(knobs.whole_plans, plan)

    def propose(self) -> None:
        """Propose pipelines, and simulate the first."""
        assert self._pipelines is not None
        self._proposals = self._pipelines.proposals()
        self._first = self._proposals[0].plan(self._problem, self._pipelines.layers)
        self._pipelines.simulated(self._proposals[0])

    def compare_rivals(self) -> None:
        """Compare the plans of other planners."""
        self._compare(self._planner.rivals())

    def compare_others(self) -> None:
        """Compare plans that divide ops by their indices, or what belongs to weights."""
        self._compare([*self._splitting(), *map(Rival, SHARDED)])
        self._compare(of_offload(self._problem, self._contest))

    def search_placement(self) -> None:
        """Search for an op placement in a share of the simulations, unless it was asked for; alone, in all of them."""
        if not self._planner.placements:
            left, alone = self._spent.left, self._pipelines is None
            self._search_placement(left - 1 if alone else int(self._share_of_placements() * left))

    def search_pipelines(self) -> None:
        """Search from the pipelines that were proposed, and those whose stages are divided."""
        assert self._pipelines is not None
        near = self._near_splits()
        if near and not is_large(self._problem):
            most = min(MOST_SPLITS // copies_of(each.plan) for each in near)
            self._for_splits = min(int(SPLITS * self._spent.left), most)
        with self._spent.kept(self._for_splits):
            self._pipelines.search([*self._pipelines.divided(), *self._proposals])

    def search_splits(self) -> None:
        """Search for splits, if those that are compared are near the best plan, pipelines too."""
        search, budget = SplitSearch(), min(self._for_splits, self._spent.left) - 1
        if budget < FEWEST_SPLITS or not self._near_splits():
            return
        known = {name: entry for name, entry in self._contest.entries.items() if name in OF_SEARCH}
        found = search.beside(self._problem, known, seed=self._seed, budget=budget)
        self._spent.add(found.simulations)
        self._contest.offer(search.name, found.plan)

    # ---- what they do ------------------------------------------------------------------------------------------------

    def _near_splits(self) -> list[Contestant]:
        """The splits that are compared and near the best plan."""
        entries = (self._contest.entries.get(rival.spec) for rival in self._planner.splitting_rivals())
        return [each for each in entries if each is not None and each.merit <= self._contest.near(NEAR)]

    def _compare(self, rivals: list[Rival]) -> None:
        missed = list[str]()
        most = self._proposals[0].micro_batches if self._proposals else 0
        for rival in rivals:
            if self._spent.left:
                rival.compared(self._contest, self._seed, self._planner.micro_batches, most)
            else:
                missed.append(rival.placer(self._planner.micro_batches).name)
        if missed:
            self._notes.append(f"planner: {self._spent.said_of_missed(missed)}")

    def _splitting(self) -> list[Rival]:
        """Plans that divide ops by their indices; of a large problem those that take no minutes and may fit."""
        problem, devices = self._problem, accelerators(self._problem.cluster)
        splitting = [] if why_undivided(problem, devices) else self._planner.splitting_rivals()
        splitting += of_degrees(problem) if splitting else []
        if not is_large(problem):
            return splitting
        least, tried = least_micro_batches(problem, len(devices)), list[Rival]()
        for rival in splitting:
            if least > 1 and not rival.is_sharded:  # that one is divided into micro-batches
                why = f"all its devices together cannot hold the step's batch, but about 1/{math.ceil(least)} of it"
            elif takes_minutes(rival):
                why = f"{len(problem.graph):,} ops on {len(devices)} devices would take it minutes"
            else:
                tried.append(rival)
                continue
            self._contest.refused[rival.spec] = why
        return tried

    def _share_of_placements(self) -> float:
        """Of the simulations, for the search for an op placement."""
        known = (entry.merit for entry in self._contest.entries.values() if entry.plan.is_placement)
        if min(known, default=INVALID) <= self._contest.near(MANY):
            return PLACEMENTS
        return 0.0 if is_large(self._problem) else HOPELESS

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


Step = Callable[[_Planning], None]
STEPS: tuple[Step, ...] = (
    _Planning.ask_policy, _Planning.search_asked_placements, _Planning.propose, _Planning.compare_rivals,
    _Planning.compare_others, _Planning.search_placement, _Planning.search_pipelines, _Planning.search_splits,
)  # fmt: skip
ONLY_PLACEMENTS: tuple[Step, ...] = (
    _Planning.search_asked_placements, _Planning.compare_rivals, _Planning.search_placement,
)  # fmt: skip
