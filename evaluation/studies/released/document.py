"""What the study of the released policy found: ratios, and where the policy loses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from evaluation.commands.arguments import AUTO
from evaluation.records.record import Record
from evaluation.studies.comparisons import CHEAP
from evaluation.studies.frame import EQUAL_TIMES, Against, Frame, cluster_of, family_of
from evaluation.studies.released import parts
from evaluation.studies.released.parts import (
    ANNEALING,
    BESIDE_CHEAP,
    BEST,
    BEST_CHEAP,
    BEST_KNOWN,
    GREEDY,
    OTHER_BEST,
    OTHER_GREEDY,
    SEARCH,
)  # fmt: skip
from evaluation.studies.simulated import Simulated
from graphs.runtime import runtime_of

WITHOUT_SEARCH = {"greedy": GREEDY, "best of n": BEST}
OWN = {**WITHOUT_SEARCH, "policy and search, n": SEARCH}
BOTH = {
    **OWN,
    "best of n, with cheap plans": BESIDE_CHEAP,
    "other policy, greedy": OTHER_GREEDY,
    "other policy, best of n": OTHER_BEST,
}
OTHERS = {
    "human expert": "human_expert",
    "HEFT": "heft",
    "METIS": "metis",
    "METIS, its own defaults": "metis:default=true",
    "best cheap of each graph": BEST_CHEAP,
    "annealing, n": ANNEALING,
    "best known": BEST_KNOWN,
}


def save(study: Simulated, found: Mapping[str, Frame], folder: Path, records: Iterable[Record] = ()) -> Path:
    """Write the document of some parts into a folder. The `records` say how plans are run."""
    seeds = max(part.num_seeds for part in found.values())
    is_ideal = study.runtime != AUTO and runtime_of(study.runtime).is_ideal
    return study.written(
        folder, records, command=study.command(parts=",".join(found), seeds=seeds), parts=found, seeds=seeds,
        released=parts, own=OWN, both=BOTH, others=OTHERS, groupings=groupings, pairs=pairs(),
        slower_families=slower_families, lost=lost, is_ideal=is_ideal,
    )  # fmt: skip


def groupings(name: str, part: Frame) -> dict[str, dict[str, list[str]]]:
    """Its problems by family or file, and by cluster if there are several."""
    if name == parts.GIPH:
        return {}
    if name in parts.IN_FILES:
        return {"file": part.apart(family_of)}
    clusters = part.apart(cluster_of)
    return {"family": part.apart(family_of)} | ({"cluster": clusters} if len(clusters) > 2 else {})


def pairs() -> dict[str, tuple[str, str]]:
    """The pairs of placers in the tables by family, file or cluster of a part."""
    greedy, best, search = OWN
    named = [
        *((greedy, rival) for rival in ("HEFT", "METIS", "best cheap of each graph", "best known")),
        *((best, rival) for rival in ("best cheap of each graph", "best known")),
        *((search, rival) for rival in ("best cheap of each graph", "annealing, n")),
    ]
    return {f"{own} over {rival}": (OWN[own], OTHERS[rival]) for own, rival in named}


def slower_families(found: Mapping[str, Frame]) -> Iterator[tuple[str, str, list[tuple[str, float]]]]:
    """Part, one of the two without a search, and the families where it is slower than BEST_CHEAP, the worst first."""
    for name, part in found.items():
        for label, own in WITHOUT_SEARCH.items():
            ratios = (
                (family, part.against(own, BEST_CHEAP, some).ratio) for family, some in part.apart(family_of).items()
            )
            slower = [
                (family, ratio.value) for family, ratio in ratios if ratio.count and ratio.value > 1 + EQUAL_TIMES
            ]
            if slower:
                yield name, label, sorted(slower, key=lambda item: -item[1])


def lost(part: Frame) -> list[tuple[str, list[Against], str]]:
    """The problems that one of the two without a search loses to a cheap placer, and which one; the worst first."""
    found = []
    for problem in part.problems:
        against = [part.against(own, BEST_CHEAP, [problem]) for own in OWN.values()]
        if any(each.losses for each in against[: len(WITHOUT_SEARCH)]):
            found.append((problem, against, _cheapest(part, problem)))
    return sorted(found, key=lambda item: -item[1][0].ratio.value if item[1][0].ratio.count else -math.inf)


def _cheapest(part: Frame, problem: str) -> str:
    """The fastest of the cheap placers."""
    seconds = np.array([part.means[placer][part.problems.index(problem)] for placer in CHEAP])
    return CHEAP[np.nanargmin(seconds)]
