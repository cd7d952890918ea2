"""What the policies of the study of trainings place, and what is found: ratios of each seed, and of specialists."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from evaluation.journal import records
from evaluation.record import Failure, Record
from evaluation.statistics import Estimate, estimate
from evaluation.studies.comparisons import compared
from evaluation.studies.frame import Against, Frame, cluster_of
from evaluation.studies.problems import Problems, problems_of
from evaluation.studies.released.parts import (
    BEST,
    BEST_CHEAP,
    CHEAP,
    FEW,
    GREEDY,
    GROUPS,
    PROFILES,
    Entry,
    part_of,
    problems_of_part,
)  # fmt: skip
from evaluation.studies.released.targets import TARGETS, Target
from evaluation.studies.trainings.runs import CLUSTERS, RELEASED_NAME, Training, TrainingsSize, of_seed, specialist
from graphs.suites import heldout

SUITES = ("heldout", "newfamilies", "clusters", PROFILES)  # that every seed places; suites, but for the profiles
SPECIAL = "specialists"  # held-out graphs on the specialists' clusters
CHEAP_NAME = "cheap"  # of the journals of the cheap placers
OWN = (GREEDY, BEST)
SPECIAL_NAMES = {GREEDY: "specialist, greedy", BEST: "specialist, best"}  # in records of both
ZERO_SHOT = tuple(
    target for target in TARGETS
    if target.part in SUITES and target.entry.placer in OWN
    and (target.rival == BEST_CHEAP or target.rival.placer in CHEAP)
)  # fmt: skip

Places = Mapping[str, Problems]  # by suite, or SPECIAL
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
    cheap: Parts  # the cheap placers alone, who place first, and everything
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
        """The same of a ratio that nothing was asked of."""
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
        """Who has not placed what, in words: it is not done yet, or failed."""
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
        """How many problems of a suite, as far as it is known, some of these have not placed."""
        known = [parts[suite].problems for parts in (self.cheap, *self.seeds.values()) if suite in parts]
        return _unplaced(part, {problem for problems in known for problem in problems}, placers)

    def _row(self, measured: Callable[[Parts], Against | None]) -> SeedRatios:
        found = {seed: measured(parts) for seed, parts in self.seeds.items()}
        ratios = {seed: against for seed, against in found.items() if against and against.problems}
        values = [against.ratio.value for against in ratios.values() if against.ratio.count]
        return SeedRatios(ratios, estimate([np.array(values)]))


def load_findings(out: Path, settings: TrainingsSize, seeds: int, specialist_seeds: int) -> SeedFindings:
    """What a folder holds of these numbers of seeds. Raises InputError for a damaged journal."""
    cheap = {name: found for name in SUITES if (found := records(_journal(out, name, CHEAP_NAME)))}
    return SeedFindings(
        seeds={seed: _seed_parts(out, of_seed(settings, seed, out).name, cheap) for seed in range(seeds)},
        cheap={name: part_of({FEW: found}) for name, found in cheap.items()},
        specialists={
            name: _special_frame(out, name, [specialist(settings, name, seed, out) for seed in range(specialist_seeds)])
            for name in CLUSTERS
        },
        specialist_seeds=specialist_seeds,
    )


def seed_places(data: Path | None) -> Places:
    """What is placed with every seed; without profiles if there is no folder of them."""
    places = {name: problems_of_part(name, data) for name in SUITES}
    return {name: problems for name, problems in places.items() if problems}


def special_places(*clusters: str) -> Places:
    """The held-out graphs on some clusters."""
    graphs = dict.fromkeys(graph for graph, _ in heldout())
    return {SPECIAL: problems_of([(graph, cluster) for graph in graphs for cluster in clusters], GROUPS)}


def special_names(cluster: str) -> list[str]:
    """The problems that a specialist is judged by."""
    return list(special_places(cluster)[SPECIAL])


def place(out: Path, places: Places, training: Training) -> list[Failure]:
    """Let the policy of a training place what it has not placed yet; who failed is tried again each time."""
    return _place(out, places, training.name, training.placers, workers=1)


def place_cheaply(out: Path, places: Places, workers: int) -> list[Failure]:
    """The same of the cheap placers."""
    return _place(out, places, CHEAP_NAME, dict.fromkeys(CHEAP, 1), workers)


def _place(out: Path, places: Places, who: str, allowed: Mapping[str, int], workers: int) -> list[Failure]:
    return [
        failure for name, problems in places.items()
        for failure in compared(_journal(out, name, who), allowed, problems, about=f"{name}, {who}", workers=workers)
    ]  # fmt: skip


def _journal(out: Path, name: str, who: str) -> Path:
    return out / f"{name}-{who}.jsonl"


def _seed_parts(out: Path, name: str, cheap: Mapping[str, Sequence[Record]]) -> Parts:
    """What a seed's policy has placed, with what the cheap placers have."""
    own = {suite: _own(records(_journal(out, suite, name)), dict(zip(OWN, OWN, strict=True))) for suite in SUITES}
    return {suite: part_of({FEW: [*found, *cheap.get(suite, ())]}) for suite, found in own.items() if found}


def _special_frame(out: Path, cluster: str, trainings: Sequence[Training]) -> Frame:
    """What the specialists of a cluster have placed with each seed, and the released policy on the same problems."""
    ours = _own(records(_journal(out, SPECIAL, RELEASED_NAME)), dict(zip(OWN, OWN, strict=True)))
    found: list[Record] = []
    for training in trainings:
        theirs = _own(records(_journal(out, SPECIAL, training.name)), SPECIAL_NAMES)
        both = [*(record for record in ours if cluster_of(record.problem) == cluster), *theirs]
        found += [replace(record, seed=training.seed) for record in both]
    return part_of({FEW: found}, [training.seed for training in trainings])


def _own(records: Sequence[Record], names: Mapping[str, str]) -> list[Record]:
    """A policy's records by these names of GREEDY and BEST, in place of specs, in which its folder is."""
    named = (replace(r, placer=names[GREEDY if r.placer.endswith("samples=1") else BEST]) for r in records)
    return list({record.case: record for record in named}.values())  # once, of a folder that was moved


def _unplaced(part: Frame | None, problems: Collection[str], placers: Collection[str], seed: int | None = None) -> int:
    """How many of the problems some of the placers have no plan for, with one seed or with any."""
    placed = [part.placed(Entry(placer), seed) if part else set() for placer in placers]
    return sum(any(problem not in there for there in placed) for problem in problems)


def _counted(who: str, left: Mapping[str, int]) -> list[str]:
    return [f"{who}, {suite} ({count})" for suite, count in left.items() if count]
