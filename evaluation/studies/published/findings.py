"""What the study of published plans finds: a recommended plan or the best of rivals, each beside the planner's."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from evaluation.records.statistics import Estimate, estimate
from evaluation.studies.published.public_planner import MEASURED, Job, Theirs, Verdict
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
    ended: bool = True  # within the time that there is
    made: str = ""  # by which version of placelab


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
    chosen: str = ""  # that answer
    unsent: float = 0.0  # of it by Sailor's simulator, if sending took no time
    asked: int = 0  # questions to the planner
    cpu_seconds: float = 0.0
    ended: bool = True  # within the time that there is
    made: str = ""  # by which version of placelab


class JobAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The planner's answer for a public planner's job, and that planner's, as the job's judge has them."""

    job: str
    seconds: float
    fits: bool
    theirs: tuple[Verdict | None, ...]  # None of those that are not published in full
    cpu_seconds: float
    notes: tuple[str, ...] = ()
    made: str = ""  # by which version of placelab


class JobRow(NamedTuple):
    """One of the published answers for a job, beside the planner's."""

    job: Job
    theirs: Theirs
    verdict: Verdict | None
    answer: JobAnswer

    @property
    def ratio(self) -> float:
        """Our seconds over theirs in the engine or, where theirs is not run there, as measured; else 0."""
        if self.verdict:
            return self.answer.seconds / self.verdict[0]
        return self.answer.seconds / self.job.seconds(self.theirs.printed) if self.theirs.how == MEASURED else 0.0

    @property
    def is_behind(self) -> bool:
        """Whether theirs is the better plan."""
        return not self.answer.fits or (self.ratio > 1 + EQUAL and (self.verdict is None or self.verdict[1]))


def job_rows(jobs: Sequence[Job], answers: Sequence[JobAnswer]) -> list[JobRow]:
    """Of the jobs that are answered."""
    of = {each.job: each for each in answers}
    return [
        JobRow(job, theirs, verdict, of[job.name]) for job in jobs if job.name in of
        for theirs, verdict in zip(job.theirs, of[job.name].theirs, strict=True)
    ]  # fmt: skip


class ScenarioResult(msgspec.Struct, frozen=True):
    """A scenario with the best pipeline of Sailor's rivals, if their search ended, and ours."""

    scenario: Scenario
    best: Judged
    ours: Judged

    @property
    def is_compared(self) -> bool:
        """Whether the rivals' search ended."""
        return self.best.ended

    @property
    def by_sailor(self) -> float:
        """Our step over theirs in Sailor's simulator."""
        return self.ours.sailor / self.best.sailor

    @property
    def unseen(self) -> float:
        """The same where the engine chooses among our answers, and Sailor's simulator only judges."""
        return self.ours.by_engine / self.best.sailor

    @property
    def chooses_otherwise(self) -> bool:
        """Whether the engine chooses another of our answers, which is slower by more than `CLOSE`."""
        return bool(self.ours.chosen) and self.ours.by_engine > (1 + CLOSE) * self.ours.sailor

    @property
    def is_behind(self) -> bool:
        """Whether theirs is better by more than `CLOSE` in Sailor's simulator."""
        return self.is_compared and self.by_sailor > 1 + CLOSE


def results_of(scenarios: Sequence[Scenario], judged: Sequence[Judged]) -> list[ScenarioResult]:
    """Of each scenario that has both."""
    of = {(each.scenario, each.who): each for each in judged}
    return [
        ScenarioResult(each, of[each.name, BEST], of[each.name, OURS]) for each in scenarios
        if (each.name, BEST) in of and (each.name, OURS) in of
    ]  # fmt: skip


def compared(rows: Sequence[Row], answers: Sequence[Answer]) -> list[Compared]:
    """Of each row whose recommended plan is simulated, and that is planned, if by `SHARDED` alone."""
    done = {(each.row, each.placer): each for each in answers if each.ended}
    return [
        Compared(row, theirs, ours, done.get((row.name, SHARDED))) for row in rows
        if (theirs := done.get((row.name, row.plan)))
        and (ours := done.get((row.name, OURS)) or done.get((row.name, SHARDED)))
    ]  # fmt: skip


def versions(answers: Sequence[Answer | Judged | JobAnswer]) -> list[tuple[str, list[str]]]:
    """Versions of placelab, with what each has answered, and whose plans; those that answered most first."""
    of = dict[str, dict[str, list[str]]]()
    for each in answers:
        match each:
            case Answer(row=row, placer=placer):
                what, who = f"Llama {row}", placer.partition(":")[0]
            case Judged(scenario=scenario, who=who):
                what = f"Sailor's {scenario}"
            case JobAnswer(job=what):
                who = OURS
        of.setdefault(each.made, {}).setdefault(what, []).append(who)
    found = [(made, [f"{what} ({', '.join(who)})" for what, who in some.items()]) for made, some in of.items()]
    return sorted(found, key=lambda each: -len(each[1]))


def mean(ratios: Sequence[float]) -> Estimate:
    """Their geometric mean."""
    return estimate([np.array(ratios)])
