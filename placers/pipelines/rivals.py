"""Rivals: the planners whose plans are compared with a planner's own, each with micro-batches that it takes."""

from dataclasses import dataclass

from envs.pipelines.pipeline import ONE_F_ONE_B
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.pipelines.contest import Contest, Contestant
from placers.pipelines.offered_degrees import TENSOR_PARALLEL, offered_degrees

RIVALS = (  # specs; those that end in "=" take micro-batches
    "data_parallel",
    "gpipe:micro_batches=",
    "single_device",
    "dapple:form=printed,micro_batches=",
    "dapple:form=corrected,micro_batches=",
    "dapple:form=released,micro_batches=",
    "black_gpipe:micro_batches=",
    "pipedream",
    "pipedream:form=printed,flush=true,mini_batches=",
    "pipedream:form=released,flush=true,mini_batches=",
    f"gpipe:order={ONE_F_ONE_B.name},micro_batches=",
    f"gpipe:order={ONE_F_ONE_B.name},recompute=true,micro_batches=",
    "human_expert",
)
SHARDED = "fsdp", "fsdp:zero=2", "fsdp:zero=1"  # compared last, as each may try several plans
OFFLOADED = "fsdp:offload=true"  # compared after them where memory is scarce
TRIED, LEAST_TRIED, MOST_TRIED = 1 / 10, 6, 12  # of the simulations left, and in all, that each may spend; ours
FEW_TRIED = 2  # of large problems, but for the one that has the least
OF_SPLITS = "tensor_parallel", "optcnn"  # those of plans that divide ops by other indices than the batch
FEWER = (0, 4, 2, 1)  # micro-batches that rivals have: their own number, or fewer if replicas do not divide those


@dataclass(frozen=True)
class Rival:
    """A planner that is compared."""

    spec: str

    @property
    def takes_micro_batches(self) -> bool:
        """Whether their number may be chosen for it."""
        return self.spec.endswith("=")

    @property
    def is_sharded(self) -> bool:
        """Whether replicas hold what belongs to weights in parts, in as many micro-batches as fit."""
        return self.spec.partition(":")[0] == SHARDED[0]

    def placer(self, micro_batches: int = 0) -> Placer:
        """The planner, with so many micro-batches, if it takes them; 0 for its own number."""
        found: Placer = by_name.build(
            "placers", f"{self.spec}{micro_batches}" if self.takes_micro_batches else self.spec
        )
        return found

    def alike(self, micro_batches: int) -> list[Placer]:
        """The planner with so many micro-batches, or, of 0, with numbers of which the first that it can plan counts."""
        counts = FEWER if self.takes_micro_batches and not micro_batches else (micro_batches,)
        return [self.placer(count) for count in counts]

    def compared(self, contest: Contest, seed: int, micro_batches: int, most: int) -> None:
        """Simulate its plan; one with `most` micro-batches, too, if that lacks memory and has fewer.

        The better one is kept; or, of a planner without a plan for the problem, why that is.
        """
        why, alike = "", self.alike(micro_batches)
        for placer in alike:
            try:
                entry = contest.compare(placer.name, placer, seed, self._budget(contest))
            except InputError as error:
                why = str(error)
                continue
            if entry is not None and self.takes_micro_batches and not micro_batches:
                self._with_more(contest, entry, seed, most)
            return
        contest.refused[alike[0].name] = why

    def _budget(self, contest: Contest) -> int | None:
        """The simulations that it may spend itself; None for all that are left."""
        if not self.is_sharded:
            return None
        least = 1 if self.spec in SHARDED[1:] else LEAST_TRIED  # those that fit most often
        most = FEW_TRIED if contest.is_large else MOST_TRIED
        return max(min(int(TRIED * contest.left), most), least)

    def _with_more(self, contest: Contest, entry: Contestant, seed: int, most: int) -> None:
        if not entry.merit.lacking or most <= entry.plan.schedule.micro_batches:
            return
        placer = self.placer(most)
        try:
            found = contest.compare(placer.name, placer, seed)
        except InputError:  # its replicas do not divide these, or its order of passes does not take them
            return
        if found is not None:
            del contest.entries[max(entry, found, key=lambda one: one.merit).who]


def of_offload(problem: Problem, contest: Contest) -> list[Rival]:
    """Updates by CPUs beside other devices, where weights in parts do not fit with the whole batch at once."""
    sharded = contest.entries.get(SHARDED[0])
    if sharded is None or problem.cluster.is_cpu.all() or not problem.cluster.is_cpu.any():
        return []
    schedule = sharded.plan.schedule
    is_scarce = sharded.merit.lacking > 0 or schedule.micro_batches > 1 or bool(schedule.recompute)
    return [Rival(OFFLOADED)] if is_scarce else []


def of_degrees(problem: Problem) -> list[Rival]:
    """All that are offered but for tensor parallelism in equal shares."""
    offered = offered_degrees(problem).items()  # tensor parallelism in equal shares is one of `OF_SPLITS`
    return [Rival(spec) for kind, spec in offered if kind != TENSOR_PARALLEL or "shares" in spec]


def takes_minutes(rival: Rival) -> bool:
    """Whether the plan of a large problem takes that long to find, or to simulate next to one that is almost the same.

    Sequence parallelism takes about as long as the tensor parallelism that it is a form of, fully sharded or not.
    """
    return rival.spec == "optcnn" or "sequence=true" in rival.spec or (rival.is_sharded and "tp=" in rival.spec)
