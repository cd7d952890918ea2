"""The study of trainings as a document: a table of the seeds' ratios, and one of the specialists."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from evaluation.studies.markdown import estimated, table
from evaluation.studies.released_document import cell
from evaluation.studies.released_parts import BEST, FEW, GREEDY, GROUPS
from evaluation.studies.released_results import BEST_CHEAP, Against, Entry
from evaluation.studies.trainings_places import SPECIAL, SUITES
from evaluation.studies.trainings_results import SPECIAL_NAMES, WITHIN, ZERO_SHOT, Results, Row
from evaluation.studies.trainings_runs import CLUSTERS, Settings, is_released, released, specialised, specialist
from graphs.foundation.files import write_whole
from graphs.suites import OTHER_CLUSTERS
from placers.learned.policy_file import load_meta
from training.recipe import Recipe

OTHERS = "clusters"  # the suite of which no target was asked
LABELS = {GREEDY: "greedy", BEST: f"best of {FEW}"}
RIVALS = {
    "the human expert": Entry("human_expert"), "HEFT": Entry("heft"), "the best cheap placer of each graph": BEST_CHEAP,
}  # fmt: skip


def save_document(results: Results, settings: Settings, out: Path, folder: Path, command: str) -> Path:
    """Write `trainings.md` into a folder, of what the study's folder `out` holds."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "trainings.md"
    write_whole(path, document(results, settings, out, command))
    return path


def document(results: Results, settings: Settings, out: Path, command: str) -> str:
    """The study in Markdown."""
    missing = results.missing()
    return "\n".join(
        [
            "# The released policy's trainings: luck of the seed, and specialists",
            "",
            "The recipe of the released policy is trained again, with other seeds and for one cluster alone. Greedy is",
            f"a policy's most likely placement, which nobody simulated; best of {FEW} is the fastest of so many.",
            "",
            f"    {command}",
            "",
            f"Every graph has at most {GROUPS} op groups. Ratios are of step times, below 1 the policy is faster:",
            "geometric means over the problems where both plans fit, with 95% intervals in [brackets].",
            "",
            f"Not done yet, or failed (problems): {'; '.join(missing) or 'nothing'}.",
            "",
            "## How much is luck of the seed?",
            "",
            *_seeds(results, settings),
            "",
            f"## Does one policy for all clusters keep up with one for each? (`{SPECIAL}`)",
            "",
            *_specialists(results, settings, out),
            "",
        ]
    )


def _seeds(results: Results, settings: Settings) -> list[str]:
    """What the seeds have of each target, and how far they are apart."""
    if not any(results.seeds.values()):
        return ["Nothing of it is done."]
    asked = [
        _row(results.seeds, target.asked, target.bound, results.target(target), results.met(target))
        for target in ZERO_SHOT
    ]
    others = [
        _row(results.seeds, f"{label}, other clusters, over {name}", "-", results.ratio(OTHERS, Entry(own), rival), {})
        for own, label in LABELS.items() for name, rival in RIVALS.items()
    ]  # fmt: skip
    heads = ("", *(f"seed {seed}" for seed in results.seeds), "mean", "apart", "target", "met by")
    again = [seed for seed in results.seeds if is_released(settings.recipe, seed)]
    known = f"Seed {again[0]} is the released policy." if again else "None of these is the released policy itself."
    return [
        f"{len(results.seeds)} seed{'s' * (len(results.seeds) > 1)} of the same recipe, {_amount(settings.recipe)}.",
        f"{known} The cheap placers are those of the study of the released policy.",
        "",
        *_placed(results),
        "",
        *table(heads, [*asked, *others]),
        "",
        "The mean is the geometric one of the seeds' ratios, and its interval is over seeds, drawn anew with",
        "replacement: of three or fewer it is from the best to the worst. Apart: by how much the slowest seed's ratio",
        "is above that of the fastest. Behind a ratio, on how many problems its plan does not fit where the rival's",
        f"does. On other clusters ({len(OTHER_CLUSTERS)} of them) nothing was asked for.",
    ]


def _placed(results: Results) -> list[str]:
    """How many problems there are of each suite."""
    counts = {name: len(results.rivals[name].problems) for name in SUITES if name in results.rivals}
    return [f"Problems: {', '.join(f'{count} of `{name}`' for name, count in counts.items())}."]


def _row(seeds: Iterable[int], about: str, bound: str, row: Row, met: Mapping[str, int]) -> list[str]:
    """The cells of a target or another ratio."""
    apart = f"{row.apart - 1:.1%}" if math.isfinite(row.apart) else "-"
    return [about, *(_short(row.ratios.get(seed)) for seed in seeds), estimated(row.mean), apart, bound, _met(met)]


def _short(against: Against | None) -> str:
    """As "0.853", or "0.853, 2 do not fit"."""
    if against is None:
        return "-"
    return (f"{against.ratio.value:.3f}" if against.ratio.count else "-") + _unfit(against)


def _met(verdicts: Mapping[str, int]) -> str:
    """As "2 of 3", or "2 of 3, 1 where it fits"."""
    if not verdicts:
        return "-"
    partly = verdicts.get("met where it fits", 0)
    return f"{verdicts.get('met', 0)} of {sum(verdicts.values())}" + (f", {partly} where it fits" if partly else "")


def _specialists(results: Results, settings: Settings, out: Path) -> list[str]:
    """The released policy over each cluster's own, and what both had of training."""
    ratios = {cluster: {placer: results.special(cluster, placer) for placer in LABELS} for cluster in CLUSTERS}
    if not any(against.problems for found in ratios.values() for against in found.values()):
        return ["Nothing of it is done."]
    known = released()
    heads = ["cluster", "released policy trained on it", "seeds"]
    for label in LABELS.values():
        heads += [f"{label}: released over specialist", f"within {WITHIN - 1:.0%}"]
    rows = []
    for cluster, found in ratios.items():
        trained_on = "yes" if cluster in known.recipe.problems.clusters else "no"
        seeds = sum(bool(part.seconds(Entry(SPECIAL_NAMES[GREEDY]))) for part in results.specialists[cluster].values())
        judged = [text for against in found.values() for text in (cell(against) + _unfit(against), within(against))]
        rows.append([f"`{cluster}`", trained_on, str(seeds), *judged])
    few = _amount(specialised(settings.recipe, CLUSTERS[0], settings.specialist_updates))
    theirs, ours = _used(_simulations(settings, results, out)), _used([load_meta(known.folder).simulations])
    return [
        "The held-out graphs on a cluster, placed by the released policy, and by a specialist: the same recipe,",
        "trained on the same training graphs on this cluster alone, no other and no randomised copy.",
        f"Every specialist had {few} on its cluster{theirs}; the released",
        f"policy had {_amount(known.recipe)} in all, over all its clusters{ours}.",
        "",
        *table(heads, rows, words=2),
        "",
        "Behind the interval, on how many of how many problems (of each seed) the released policy is faster by more",
        "than a tenth of a per cent, or fits where the specialist does not. The interval is over problems, and of",
        "several seeds of a specialist over these, too. Within "
        f"{WITHIN - 1:.0%}: whether the mean is at most {WITHIN:.2f}. A specialist that trained longer may be faster.",
    ]


def within(against: Against) -> str:
    """Whether the released policy takes no more than 3% longer; plans that do not fit are in no mean."""
    if against.ratio.count == 0:
        return "-"
    if against.ratio.value > WITHIN:
        return "no"
    return "where it fits" if against.unfit else "yes"


def _unfit(against: Against) -> str:
    """As ", 2 do not fit" of plans that do not where the rival's does."""
    return f", {against.unfit} do{'es' * (against.unfit == 1)} not fit" if against.unfit else ""


def _amount(recipe: Recipe) -> str:
    """How long a recipe trains."""
    before = f"{recipe.imitation.updates:,} updates of imitation and " if recipe.imitation.updates else ""
    return f"{before}{recipe.ppo.updates:,} updates of PPO"


def _used(simulations: Sequence[int]) -> str:
    """How many simulations the trainings took, if that is known."""
    return f" ({round(sum(simulations) / len(simulations)):,} simulations)" if simulations else ""


def _simulations(settings: Settings, results: Results, out: Path) -> list[int]:
    """Of each specialist that is trained."""
    named = [(cluster, seed) for cluster, by_seed in results.specialists.items() for seed in by_seed]
    trainings = [specialist(settings, cluster, seed, out) for cluster, seed in named]
    return [load_meta(training.folder).simulations for training in trainings if training.is_done]
