"""Search for splits: by which index every op is divided over all devices, proposed by price and chosen by simulation.

Cuts of least seconds on links are found exactly, but what a plan takes is no sum of prices: gradients are summed up
while the backward pass goes on, or they hold it up, and ops wait in the order in which they are run. So cuts are found
at several prices for gradients and on several meshes, simulated in two orders, and the best are changed kind of op by
kind of op, whatever else has to change with it found by price again. Data parallelism, tensor parallelism and the cuts
of Tofu and OptCNN are compared in the same simulator, so that the result is behind none of them; a note says which it
was.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.plans.schedule import BUCKET_BYTES
from graphs.foundation import by_name
from graphs.foundation.by_name import Extension, Named
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import PROGRAM
from placers.contract.placer import Placer
from placers.pipelines.budget import Spent, spending
from placers.pipelines.contest import Contest, Contestant
from placers.pipelines.notes import said_of
from placers.splits.cuts import SplitAssignment, searched
from placers.splits.described_step import plan_of, split_graph_of
from placers.splits.mesh import best_mesh, prices_of_links
from placers.splits.neighbours import Kept, Kind, kinds_of, neighbours
from placers.splits.options import SplitRules, Splitting
from placers.splits.pricing import Pricing
from placers.splits.undivided import first_devices, on_one_device, why_undivided

BY_REQUEST = True  # it compares all others that divide ops itself

OWN = "its own cuts"
RIVALS = "data_parallel", "tensor_parallel", "tofu", "optcnn"
GRADIENTS = (0.5, 1.0, 0.25, 0.0)  # prices of what passes of gradients, as a share of the time on links; ours
ORDERS = (PROGRAM, None)  # in that of the program sums of gradients begin early; by the problem's rule ops wait less
BUCKETS = (BUCKET_BYTES / 4, BUCKET_BYTES * 4)
TIGHTER = 4  # times that the limit is lowered for cuts that need more memory in the simulator than by price
MARGIN = 0.97  # of the limit that they then seem to need
FAR = 1.5  # times the best plan's seconds: cuts that take more are simulated in one order; ours
STARTS = 2  # cuts that are improved, the best first; ours
MOST_OPERATIONS = 1e7  # for all axes at once, which prices need not be exact for


@dataclass(frozen=True)
class SplitSearch(Named):
    """Cuts at several prices, improved by simulation, or the best of other placers that divide ops."""

    divides_batch: ClassVar[bool] = True

    devices: int = 0
    """How many devices, the first ones; 0 for all. CPUs are used only if there is nothing else."""

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        """The best plan in at most `budget` simulations, or until Ctrl-C.

        All on one device if nothing can be divided, which a note says. Raises InputError for more devices than there
        are.
        """
        devices = first_devices(problem, "split_search", self.devices)
        if reason := why_undivided(problem, devices):
            return on_one_device(problem, reason, self.name, seed, budget)
        return self.beside(problem, {}, seed=seed, budget=budget)

    def beside(
        self, problem: Problem, known: Mapping[str, Contestant], *, seed: int = 0, budget: int = 1
    ) -> PlacerResult:
        """The same of a problem that can be divided, beside plans of some rivals, by name, that have been simulated.

        If there are any, no other rivals are asked.
        """
        devices = first_devices(problem, "split_search", self.devices)
        with spending(budget, "searching splits") as spent:
            search = _Search(problem, devices, seed, spent)
            search.run(known)
            stopped = spent.stopped
        return search.result(self.name, stopped=stopped)


build = SplitSearch


@dataclass(frozen=True, eq=False)
class _Way:
    """Cuts as they are simulated."""

    pricing: Pricing
    kinds: tuple[Kind, ...]
    limit: float  # bytes by price
    start: Kept
    order: Extension[Any] | None = ORDERS[0]
    bucket_bytes: float = BUCKET_BYTES

    def plan(self, devices: tuple[int, ...]) -> Plan:
        found = plan_of(self.pricing.splitting, self.start.cuts, devices)
        return replace(found, order=self.order, schedule=replace(found.schedule, bucket_bytes=self.bucket_bytes))


class _Search:
    """The search for one problem."""

    def __init__(self, problem: Problem, devices: tuple[int, ...], seed: int, spent: Spent) -> None:
        self._problem, self._devices, self._seed, self._spent = problem, devices, seed, spent
        self._contest = Contest(problem, spent)
        self._memory = float(problem.cluster.memory_bytes[list(devices)].min())
        self._first: Plan | None = None
        self._notes = list[str]()

    def run(self, known: Mapping[str, Contestant]) -> None:
        """Spend the simulations."""
        self._compare_rivals(known)
        ways = list[tuple[Contestant, _Way]]()
        for way in self._proposed():
            if self._first is None:
                self._first = way.plan(self._devices)
            if not self._spent.left:
                return
            ways += [(entry, each) for each in self._fitted(way) if (entry := self._offer(each)) is not None]
        ways.sort(key=lambda pair: pair[0].merit)
        distinct = {entry.plan: (entry, way) for entry, way in reversed(ways)}
        for entry, way in sorted(distinct.values(), key=lambda pair: pair[0].merit)[:STARTS]:
            self._improve(entry, way)

    def result(self, name: str, *, stopped: bool) -> PlacerResult:
        """The best plan, and how it was found."""
        best, spent = self._contest.best, self._spent
        if stopped:
            self._notes.append(
                f"split_search: stopped by Ctrl-C after {spent.simulations} of {spent.budget} simulations."
            )
        if best is None:
            plan = self._first or self._rival("data_parallel").place(self._problem, budget=0).plan
            self._notes.append("split_search: nothing was simulated; this is the best plan by price.")
            return PlacerResult(plan, name, self._seed, spent.simulations, notes=tuple(self._notes))
        notes = (*said_of(self._contest, self._problem, "split_search"), *self._notes)
        return PlacerResult(best.plan, name, self._seed, spent.simulations, tuple(self._contest.curve), notes)

    # ---- other placers -----------------------------------------------------------------------------------

    def _compare_rivals(self, known: Mapping[str, Contestant]) -> None:
        for word in known or RIVALS:
            entry = self._contest.joined(known[word]) if known else self._compared(word)
            if entry is not None and entry.plan.order is None:
                plan = replace(entry.plan, order=ORDERS[0])
                self._contest.offer(f"{word} in the order of the program", plan)

    def _compared(self, word: str) -> Contestant | None:
        """A rival's plan, simulated, if it has one and there are simulations left."""
        if not self._spent.left:
            self._notes.append(f"split_search: {self._spent.said_of_missed([word])}")
            return None
        try:
            return self._contest.compare(word, self._rival(word), self._seed)
        except InputError as error:
            self._contest.refused[word] = str(error)
            return None

    def _rival(self, word: str) -> Placer:
        rival: Placer = by_name.build("placers", f"{word}:devices={len(self._devices)}")
        return rival

    # ---- cuts --------------------------------------------------------------------------------------------

    def _proposed(self) -> Iterator[_Way]:
        """Cuts of least cost at several prices, on all devices as one axis and on several axes."""
        graph = split_graph_of(self._problem, coarsened=False)
        meshes = dict.fromkeys(((len(self._devices),), best_mesh(self._problem.cluster, self._devices)))
        splittings = [Splitting(graph, mesh, SplitRules(replicas=True)) for mesh in meshes]
        kinds = [kinds_of(self._problem.graph, splitting) for splitting in splittings]
        cluster, devices = self._problem.cluster, self._devices
        at_full_price = [Pricing(each, prices_of_links(cluster, devices, each.mesh)) for each in splittings]
        for share in GRADIENTS:
            for full, each in zip(at_full_price, kinds, strict=True):
                pricing = full.repriced(share)
                try:
                    yield _Way(pricing, each, self._memory, Kept(self._cheapest(pricing, self._memory)))
                except InputError as error:  # too many choices depend on each other
                    self._contest.refused[OWN] = str(error)

    def _cheapest(self, pricing: Pricing, limit: float) -> SplitAssignment:
        return searched(pricing, limit, most_operations=MOST_OPERATIONS)

    def _fitted(self, way: _Way) -> Iterator[_Way]:
        """The same cuts in both orders, or tighter ones until they fit in the simulator, too."""
        for _ in range(TIGHTER):
            entry = self._offer(way)
            if entry is None or not entry.merit.lacking:
                break
            peak = float(entry.peak_bytes[list(self._devices)].max())
            limit = min(way.limit, way.start.cuts.held) * self._memory / peak * MARGIN
            yield way
            found = self._cheapest(way.pricing, limit)
            if not found.fits:
                break
            way = replace(way, limit=limit, start=Kept(found))
        is_far = entry is not None and entry.merit > self._contest.near(FAR)
        for order in ORDERS[: 1 if is_far else None]:
            yield replace(way, order=order)

    def _offer(self, way: _Way) -> Contestant | None:
        return self._contest.offer(OWN, way.plan(self._devices))

    def _improve(self, best: Contestant, way: _Way) -> None:
        """Change cuts kind by kind, going on from each that is better, until none is or no simulation is left."""
        for bucket_bytes in BUCKETS:
            best, way, _ = self._better(best, way, replace(way, bucket_bytes=bucket_bytes))
        kinds, improving = way.kinds, True
        while improving:
            improving = False
            for kind, start in neighbours(way.pricing, way.start, kinds, way.limit):
                if not self._spent.left:
                    return
                best, way, improving = self._better(best, way, replace(way, start=start))
                if improving:
                    kinds = (*kinds[kind:], *kinds[:kind])  # the next ones first
                    break

    def _better(self, best: Contestant, way: _Way, other: _Way) -> tuple[Contestant, _Way, bool]:
        entry = self._offer(other)
        if entry is not None and entry.merit < best.merit:
            return entry, other, True
        return best, way, False
