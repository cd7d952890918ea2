"""The document of the study of trainings: a table of the seeds' ratios, and one of the specialists."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from evaluation.studies.document import save_document
from evaluation.studies.frame import Against
from evaluation.studies.released.parts import BEST, BEST_CHEAP, FEW, GREEDY, GROUPS, Entry
from evaluation.studies.trainings.results import SPECIAL, ZERO_SHOT, SeedFindings, SeedRatios
from evaluation.studies.trainings.runs import CLUSTERS, TrainingsSize, is_released, released, specialised, specialist
from graphs.suites import OTHER_CLUSTERS
from placers.learned.policy_file import load_meta

WITHIN = 1.03  # of a specialist's step time
OTHERS = "clusters"  # the suite of which no target was asked
LABELS = {GREEDY: "greedy", BEST: f"best of {FEW}"}
OVER = {
    "the human expert": Entry("human_expert"), "HEFT": Entry("heft"), "the best cheap placer of each graph": BEST_CHEAP,
}  # fmt: skip


def save(found: SeedFindings, settings: TrainingsSize, out: Path, folder: Path, command: str) -> Path:
    """Write `trainings.md` into a folder, of what the study's folder `out` holds."""
    known = released()
    ratios = {cluster: {placer: found.special(cluster, placer) for placer in LABELS} for cluster in found.specialists}
    return save_document(
        "trainings", "trainings.md", folder, {},
        command=command, found=found, recipe=settings.recipe, released=known.recipe, rows=rows(found),
        again=[seed for seed in found.seeds if is_released(settings.recipe, seed)],
        special=specialised(settings.recipe, CLUSTERS[0], settings.specialist_updates),
        ratios=ratios, has_specialists=any(ratio.problems for some in ratios.values() for ratio in some.values()),
        simulations=simulations(settings, found, out), released_simulations=load_meta(known.folder).simulations,
        part=SPECIAL, labels=LABELS, limit=WITHIN, within=within, others=OTHER_CLUSTERS, few=FEW, groups=GROUPS,
    )  # fmt: skip


def rows(found: SeedFindings) -> list[tuple[str, SeedRatios, str, Counter[str]]]:
    """What each target or other ratio is about, what the seeds have of it, what was asked, and how many have met it."""
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
    trainings = [specialist(settings, cluster, seed, out) for cluster, seed in named]
    return [load_meta(training.folder).simulations for training in trainings if training.is_done]
