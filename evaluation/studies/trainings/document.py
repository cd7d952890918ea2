"""What the study of trainings found, and its document: the seeds' ratios, and those of the specialists."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from evaluation.journal import records
from evaluation.record import Record
from evaluation.statistics import Estimate, estimate
from evaluation.studies.cheap_placers import CHEAP
from evaluation.studies.document import save_document
from evaluation.studies.frame import Against, Frame, cluster_of
from evaluation.studies.released import parts as released
from evaluation.studies.released.parts import BEST, BEST_CHEAP, FEW, GREEDY, Entry, Target, part_of
from evaluation.studies.trainings import runs
from evaluation.studies.trainings.runs import CLUSTERS, SPECIAL, SUITES, TrainingsSize, special_names
from graphs.suites import OTHER_CLUSTERS
from placers.learned.policy_meta import load_meta

OWN = {GREEDY: GREEDY, BEST: BEST}  # the released policy's names in records
SPECIAL_NAMES = {GREEDY: "specialist, greedy", BEST: "specialist, best"}  # a specialist's names in records of both
ZERO_SHOT = tuple(
    target for target in released.TARGETS
    if target.part in SUITES and target.entry.placer in OWN
    and (target.rival == BEST_CHEAP or target.rival.placer in CHEAP)
)  # fmt: skip
WITHIN = 1.03  # of a specialist's step time
OTHERS = "clusters"  # the suite without a target
LABELS = {GREEDY: "greedy", BEST: f"best of {FEW}"}
OVER = {
    "the human expert": Entry("human_expert"), "HEFT": Entry("heft"), "the best cheap placer of each graph": BEST_CHEAP,
}  # fmt: skip

Parts = Mapping[str, Frame]  # by suite


@dataclass(frozen=True)
class SeedRatios:
    """A ratio that every seed has."""

    ratios: Mapping[int, Against]  # by seed
    mean: Estimate  # geometric, over seeds

    @property
    def apart(self) -> float:
        """The slowest seed's ratio over that of the fastest; NaN of fewer than two."""
        values = [against.ratio.value for against in self.ratios.values() if against.ratio.count]
        return max(values) / min(values) if len(values) > 1 else math.nan


@dataclass(frozen=True)
class SeedFindings:
    """What is done of a study."""

    seeds: Mapping[int, Parts]  # by seed, of all that are asked for
    cheap: Parts  # the cheap placers alone, which place everything first
    specialists: Mapping[str, Frame]  # by cluster, with all seeds; the released policy and the specialist
    specialist_seeds: int

    @property
    def has_seeds(self) -> bool:
        """Whether the policy of any seed has placed anything."""
        return any(self.seeds.values())

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write down."""
        return not self.has_seeds and not any(part.problems for part in self.specialists.values())

    def target(self, target: Target) -> SeedRatios:
        """What the seeds have of a target."""
        return self._row(target.measured)

    def ratio(self, part: str, entry: Entry, rival: Entry) -> SeedRatios:
        """The same for a ratio without a target."""
        return self._row(lambda parts: parts[part].against(entry, rival) if part in parts else None)

    def met(self, target: Target) -> Counter[str]:
        """How many seeds have which verdict."""
        return Counter(target.verdict(against) for against in self.target(target).ratios.values())

    def special(self, cluster: str, placer: str) -> Against:
        """The released policy over the specialists of a cluster, GREEDY or BEST."""
        return self.specialists[cluster].against_of_each_seed(Entry(placer), Entry(SPECIAL_NAMES[placer]))

    def special_seeds(self, cluster: str) -> int:
        """Of how many seeds a specialist of the cluster has placed anything."""
        return int((~np.isnan(self.specialists[cluster].table(Entry(SPECIAL_NAMES[GREEDY])))).any(axis=1).sum())

    def missing(self) -> list[str]:
        """In words, which placers have not placed which problems: not done yet, or failed."""
        said: list[str] = []
        for seed, parts in self.seeds.items():
            left = {name: self._left(name, parts.get(name), OWN) for name in SUITES}
            said += [f"seed {seed}"] if not parts else _counted(f"seed {seed}", left)
        if self.has_seeds:
            said += [name for name in SUITES if name not in self.cheap]
        for placer in CHEAP:
            said += _counted(placer, {name: self._left(name, self.cheap.get(name), [placer]) for name in SUITES})
        for cluster, part in self.specialists.items():
            problems = special_names(cluster)
            for seed in range(self.specialist_seeds):
                left = {SPECIAL: _unplaced(part, problems, (*OWN, *SPECIAL_NAMES.values()), seed)}
                said += _counted(f"{cluster}, seed {seed}", left)
        return said

    def _left(self, suite: str, part: Frame | None, placers: Collection[str]) -> int:
        """How many known problems of a suite some of these have not placed."""
        known = [parts[suite].problems for parts in (self.cheap, *self.seeds.values()) if suite in parts]
        return _unplaced(part, {problem for problems in known for problem in problems}, placers)

    def _row(self, measured: Callable[[Parts], Against | None]) -> SeedRatios:
        found = {seed: measured(parts) for seed, parts in self.seeds.items()}
        ratios = {seed: against for seed, against in found.items() if against and against.problems}
        values = [against.ratio.value for against in ratios.values() if against.ratio.count]
        return SeedRatios(ratios, estimate([np.array(values)]))


def load_findings(out: Path, settings: TrainingsSize, seeds: int, specialist_seeds: int) -> SeedFindings:
    """What a folder holds of these numbers of seeds. Raises InputError for a damaged journal."""
    cheap = {name: found for name in SUITES if (found := records(runs.journal_of(out, name, runs.CHEAP_NAME)))}
    return SeedFindings(
        seeds={seed: _seed_parts(out, runs.of_seed(settings, seed, out).name, cheap) for seed in range(seeds)},
        cheap={name: part_of({FEW: found}) for name, found in cheap.items()},
        specialists={cluster: _special_frame(out, cluster, settings, specialist_seeds) for cluster in CLUSTERS},
        specialist_seeds=specialist_seeds,
    )


def _seed_parts(out: Path, name: str, cheap: Mapping[str, Sequence[Record]]) -> Parts:
    """What a seed's policy has placed, with what the cheap placers have."""
    own = {suite: _own(records(runs.journal_of(out, suite, name))) for suite in SUITES}
    return {suite: part_of({FEW: [*found, *cheap.get(suite, ())]}) for suite, found in own.items() if found}


def _special_frame(out: Path, cluster: str, settings: TrainingsSize, seeds: int) -> Frame:
    """What the specialists of a cluster have placed with each seed, and the released policy on the same problems."""
    ours = _own(records(runs.journal_of(out, SPECIAL, runs.RELEASED_NAME)))
    found: list[Record] = []
    for seed in range(seeds):
        name = runs.specialist(settings, cluster, seed, out).name
        theirs = _own(records(runs.journal_of(out, SPECIAL, name)), SPECIAL_NAMES)
        both = [*(record for record in ours if cluster_of(record.problem) == cluster), *theirs]
        found += [replace(record, seed=seed) for record in both]
    return part_of({FEW: found}, range(seeds))


def _own(records: Sequence[Record], names: Mapping[str, str] = OWN) -> list[Record]:
    """A policy's records with these names of GREEDY and BEST; the specs in the journal contain its folder."""
    named = (replace(r, placer=names[GREEDY if r.placer.endswith("samples=1") else BEST]) for r in records)
    return list({record.case: record for record in named}.values())  # once, of a folder that was moved


def _unplaced(part: Frame | None, problems: Collection[str], placers: Collection[str], seed: int | None = None) -> int:
    """How many of the problems some of the placers have no plan for, with one seed or with any."""
    placed = [part.placed(Entry(placer), seed) if part else set() for placer in placers]
    return sum(any(problem not in there for there in placed) for problem in problems)


def _counted(who: str, left: Mapping[str, int]) -> list[str]:
    return [f"{who}, {suite} ({count})" for suite, count in left.items() if count]


def save(found: SeedFindings, settings: TrainingsSize, out: Path, folder: Path, command: str) -> Path:
    """Write `trainings.md` into a folder, of what the study's folder `out` holds."""
    known = runs.released()
    ratios = {cluster: {placer: found.special(cluster, placer) for placer in LABELS} for cluster in found.specialists}
    return save_document(
        "trainings", "trainings.md", folder, {},
        command=command, found=found, recipe=settings.recipe, released=known.recipe, rows=rows(found),
        again=[seed for seed in found.seeds if runs.is_released(settings.recipe, seed)],
        special=runs.specialised(settings.recipe, CLUSTERS[0], settings.specialist_updates),
        ratios=ratios, has_specialists=any(ratio.problems for some in ratios.values() for ratio in some.values()),
        simulations=simulations(settings, found, out), released_simulations=load_meta(known.folder).simulations,
        part=SPECIAL, labels=LABELS, limit=WITHIN, within=within, others=OTHER_CLUSTERS, few=FEW,
        groups=released.GROUPS,
    )  # fmt: skip


def rows(found: SeedFindings) -> list[tuple[str, SeedRatios, str, Counter[str]]]:
    """Of each target or other ratio: its subject, the seeds' values, the bound, and how many seeds have met it."""
    asked = [(each.asked, found.target(each), each.bound, found.met(each)) for each in ZERO_SHOT]
    others = [
        (f"{label}, other clusters, over {name}", found.ratio(OTHERS, Entry(own), rival), "-", Counter[str]())
        for own, label in LABELS.items() for name, rival in OVER.items()
    ]  # fmt: skip
    return [*asked, *others]


def within(against: Against) -> str:
    """Whether the released policy takes no more than 3% longer; plans that do not fit are in no mean."""
    if against.ratio.count == 0:
        return "-"
    if against.ratio.value > WITHIN:
        return "no"
    return "where it fits" if against.unfit else "yes"


def simulations(settings: TrainingsSize, found: SeedFindings, out: Path) -> list[int]:
    """Of each specialist that is trained."""
    named = [(cluster, seed) for cluster in found.specialists for seed in range(found.specialist_seeds)]
    trainings = [runs.specialist(settings, cluster, seed, out) for cluster, seed in named]
    return [load_meta(training.folder).simulations for training in trainings if training.is_done]
