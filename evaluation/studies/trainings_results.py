"""What the study of trainings found: the ratios of each seed, and the released policy over those of one cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from evaluation.record import Record
from evaluation.statistics import Estimate, crossed, estimate
from evaluation.studies.released_parts import BEST, CHEAP, FEW, GREEDY
from evaluation.studies.released_results import BEST_CHEAP, Against, Entry, Part, cluster_of
from evaluation.studies.released_targets import TARGETS, Target
from evaluation.studies.trainings_places import RIVALS, SPECIAL, SUITES, records_of, special_names
from evaluation.studies.trainings_runs import CLUSTERS, RELEASED_NAME, Settings, of_seed, specialist
from graphs.op_graph import Floats

WITHIN = 1.03  # of a specialist's step time
OWN = (GREEDY, BEST)
SPECIAL_NAMES = {GREEDY: "specialist, greedy", BEST: "specialist, best"}  # in records of both
ZERO_SHOT = tuple(
    target for target in TARGETS
    if target.part in SUITES and target.entry.placer in OWN
    and (target.rival == BEST_CHEAP or target.rival.placer in CHEAP)
)  # fmt: skip

Parts = Mapping[str, Part]  # by suite


@dataclass(frozen=True)
class Row:
    """A ratio that every seed has."""

    ratios: Mapping[int, Against]  # by seed
    mean: Estimate  # geometric, over seeds

    @property
    def apart(self) -> float:
        """The slowest seed's ratio over that of the fastest; NaN of fewer than two."""
        values = [against.ratio.value for against in self.ratios.values() if against.ratio.count]
        return max(values) / min(values) if len(values) > 1 else math.nan


@dataclass(frozen=True)
class Results:
    """What is done of a study."""

    seeds: Mapping[int, Parts]  # by seed, of all that are asked for
    rivals: Parts  # the cheap placers alone, who place first, and everything
    specialists: Mapping[str, Mapping[int, Part]]  # by cluster and seed; the released policy and the specialist

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write down."""
        placed = [part.problems for by_seed in self.specialists.values() for part in by_seed.values()]
        return not any(self.seeds.values()) and not any(placed)

    def target(self, target: Target) -> Row:
        """What the seeds have of a target."""
        return self._row(target.measured)

    def ratio(self, part: str, entry: Entry, rival: Entry) -> Row:
        """The same of a ratio that nothing was asked of."""
        return self._row(lambda parts: parts[part].against(entry, rival) if part in parts else None)

    def met(self, target: Target) -> dict[str, int]:
        """How many seeds have which verdict."""
        verdicts = [target.verdict(against) for against in self.target(target).ratios.values()]
        return {verdict: verdicts.count(verdict) for verdict in verdicts}

    def special(self, cluster: str, placer: str) -> Against:
        """The released policy over the specialists of a cluster, GREEDY or BEST."""
        parts = list(self.specialists.get(cluster, {}).values())
        return over_seeds(parts, Entry(placer), Entry(SPECIAL_NAMES[placer]))

    def missing(self) -> list[str]:
        """Who has not placed what, in words: it is not done yet, or failed."""
        said: list[str] = []
        for seed, parts in self.seeds.items():
            left = {name: self._left(name, parts.get(name), OWN) for name in SUITES}
            said += [f"seed {seed}"] if not parts else _counted(f"seed {seed}", left)
        if any(self.seeds.values()):
            said += [name for name in SUITES if name not in self.rivals]
        for placer in CHEAP:
            said += _counted(placer, {name: self._left(name, self.rivals.get(name), [placer]) for name in SUITES})
        for cluster, by_seed in self.specialists.items():
            for seed, part in by_seed.items():
                left = {SPECIAL: _unplaced(part, special_names(cluster), (*OWN, *SPECIAL_NAMES.values()))}
                said += _counted(f"{cluster}, seed {seed}", left)
        return said

    def _left(self, suite: str, part: Part | None, placers: Collection[str]) -> int:
        """How many problems of a suite, as far as it is known, some of these have not placed."""
        known = [parts[suite].problems for parts in (self.rivals, *self.seeds.values()) if suite in parts]
        return _unplaced(part, {problem for problems in known for problem in problems}, placers)

    def _row(self, measured: Callable[[Parts], Against | None]) -> Row:
        found = {seed: measured(parts) for seed, parts in self.seeds.items()}
        ratios = {seed: against for seed, against in found.items() if against and against.problems}
        values = [against.ratio.value for against in ratios.values() if against.ratio.count]
        return Row(ratios, estimate([np.array(values)]))


def over_seeds(parts: Sequence[Part], entry: Entry, rival: Entry) -> Against:
    """An entry against a rival, each part being of another seed of either; the interval is over seeds and problems."""
    each = [part.against(entry, rival) for part in parts]
    problems = tuple(dict.fromkeys(problem for part in parts for problem in part.problems))
    return Against(
        ratio=crossed(np.array([_ratios(part, entry, rival, problems) for part in parts])),
        wins=sum(against.wins for against in each),
        losses=sum(against.losses for against in each),
        problems=sum(against.problems for against in each),
        unfit=sum(against.unfit for against in each),
    )


def load_results(out: Path, settings: Settings, seeds: int, specialist_seeds: int) -> Results:
    """What a folder holds of so many seeds. Raises InputError for a damaged journal."""
    rivals = {name: records for name in SUITES if (records := records_of(out, name, RIVALS))}
    placed = {seed: _seed_parts(out, settings, seed, rivals) for seed in range(seeds)}
    special = {
        cluster: {seed: _special_part(out, settings, cluster, seed) for seed in range(specialist_seeds)}
        for cluster in CLUSTERS
    }
    return Results(placed, {name: Part(name, {FEW: records}) for name, records in rivals.items()}, special)


def _seed_parts(out: Path, settings: Settings, seed: int, rivals: Mapping[str, Sequence[Record]]) -> Parts:
    """What a seed's policy has placed, beside the cheap placers."""
    name = of_seed(settings, seed, out).name
    own = {suite: _own(records_of(out, suite, name), dict(zip(OWN, OWN, strict=True))) for suite in SUITES}
    return {suite: Part(suite, {FEW: [*found, *rivals.get(suite, ())]}) for suite, found in own.items() if found}


def _special_part(out: Path, settings: Settings, cluster: str, seed: int) -> Part:
    """What a specialist has placed, and the released policy on the same cluster."""
    name = specialist(settings, cluster, seed, out).name
    theirs = _own(records_of(out, SPECIAL, name), SPECIAL_NAMES)
    ours = _own(records_of(out, SPECIAL, RELEASED_NAME), dict(zip(OWN, OWN, strict=True)))
    return Part(SPECIAL, {FEW: [*(record for record in ours if cluster_of(record.problem) == cluster), *theirs]})


def _own(records: Sequence[Record], names: Mapping[str, str]) -> list[Record]:
    """A policy's records by these names of GREEDY and BEST, in place of specs, in which its folder is."""
    named = (replace(r, placer=names[GREEDY if r.placer.endswith("samples=1") else BEST]) for r in records)
    return list({record.case: record for record in named}.values())  # once, of a folder that was moved


def _ratios(part: Part, entry: Entry, rival: Entry, problems: Sequence[str]) -> Floats:
    """(problems,) of step times where both plans fit, and NaN elsewhere."""
    own, other = part.seconds(entry), part.seconds(rival)
    pairs = ((own.get(problem, math.inf), other.get(problem, math.inf)) for problem in problems)
    return np.array([a / b if math.isfinite(a) and math.isfinite(b) else math.nan for a, b in pairs])


def _unplaced(part: Part | None, problems: Collection[str], placers: Collection[str]) -> int:
    """How many of the problems some of the placers have no plan for."""
    placed = [part.seconds(Entry(placer)) if part else {} for placer in placers]
    return sum(any(problem not in seconds for seconds in placed) for problem in problems)


def _counted(who: str, left: Mapping[str, int]) -> list[str]:
    return [f"{who}, {suite} ({count})" for suite, count in left.items() if count]
