"""What the study of published plans finds: a recommended plan or the best of rivals, each beside the planner's."""

from collections.abc import Sequence

import msgspec
import numpy as np

from evaluation.records.statistics import Estimate, estimate
from evaluation.studies.published.recommended import Row
from evaluation.studies.published.sailor import Scenario

OURS, BEST = "planner", "best"
SHARDED = "fsdp"  # a rival of the planner, in its place where it has not planned yet
STATE = 12.0  # bytes of a parameter that the distributed optimizer divides: master weights and Adam's moments
EQUAL = 1e-3  # relative: as fast
CLOSE = 0.01  # in Sailor's simulator


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plan for a row, as the engine judges it."""

    row: str  # its name
    placer: str
    seconds: float  # of a step
    peak: float  # bytes of the fullest GPU
    fits: bool
    cpu_seconds: float  # of the placer, and of one simulation
    weights: float = 0.0  # parameters of the model
    notes: tuple[str, ...] = ()


class Compared(msgspec.Struct, frozen=True):
    """A row with both of its plans."""

    row: Row
    theirs: Answer
    ours: Answer
    sharded: Answer | None = None  # of `SHARDED` alone, if it was tried

    @property
    def ratio(self) -> float:
        """Our step over theirs, whether theirs fits or not."""
        return self.ours.seconds / self.theirs.seconds

    @property
    def is_behind(self) -> bool:
        """Whether theirs is the better plan."""
        return not self.ours.fits or self.ratio > 1 + EQUAL

    @property
    def missed(self) -> float:
        """The planner's step over that of `SHARDED` alone, if that is better; else 0."""
        if self.ours.placer != OURS or self.sharded is None or not self.sharded.fits:
            return 0.0
        ratio = self.ours.seconds / self.sharded.seconds
        return ratio if ratio > 1 + EQUAL else 0.0

    @property
    def their_peak(self) -> float:
        """Bytes of their fullest GPU with the distributed optimizer, which the engine has without divided ops only."""
        parts = self.row.dp * self.row.cp if self.row.divides_ops else 1
        return self.theirs.peak - STATE * self.theirs.weights / (self.row.tp * self.row.pp) * (1 - 1 / parts)


class Judged(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pipeline for a scenario of Sailor's, as both simulators judge it."""

    scenario: str
    who: str  # OURS or BEST
    text: str  # the pipeline in Sailor's terms
    sailor: float  # seconds of a step by Sailor's simulator
    engine: float | None  # by placelab's engine; None of mixed stages, whose replicas are not alike
    by_engine: float = 0.0  # by Sailor's simulator, of our answer that the engine says is fastest
    asked: int = 0  # questions to the planner
    cpu_seconds: float = 0.0


class ScenarioResult(msgspec.Struct, frozen=True):
    """A scenario with the best pipeline of Sailor's rivals and ours."""

    scenario: Scenario
    best: Judged
    ours: Judged

    @property
    def by_sailor(self) -> float:
        """Our step over theirs in Sailor's simulator."""
        return self.ours.sailor / self.best.sailor

    @property
    def unseen(self) -> float:
        """The same where the engine chooses among our answers, and Sailor's simulator only judges."""
        return self.ours.by_engine / self.best.sailor

    @property
    def is_behind(self) -> bool:
        """Whether theirs is better by more than `CLOSE` in Sailor's simulator."""
        return self.by_sailor > 1 + CLOSE


def results_of(scenarios: Sequence[Scenario], judged: Sequence[Judged]) -> list[ScenarioResult]:
    """Of each scenario that has both."""
    of = {(each.scenario, each.who): each for each in judged}
    return [
        ScenarioResult(each, of[each.name, BEST], of[each.name, OURS]) for each in scenarios
        if (each.name, BEST) in of and (each.name, OURS) in of
    ]  # fmt: skip


def mean(ratios: Sequence[float]) -> Estimate:
    """Their geometric mean."""
    return estimate([np.array(ratios)])
