"""The report of a run: one HTML file with everything in it, to look at, send and print."""

from collections import Counter
from pathlib import Path

from markupsafe import Markup

from evaluation.comparing.comparison import Comparison
from evaluation.drawing.sections import Section, Sheet, Tile, faster_tile, placer_sheet, problem_sheet, results_page
from evaluation.records.formatting import ratio
from evaluation.records.run_files import EvaluationFile
from evaluation.reporting.best_plan import TITLE, BestPlan
from evaluation.reporting.findings import findings, tuning_findings
from evaluation.reporting.learning import TUNING_CURVES, curve_figure, learning_section, levels, present
from evaluation.reporting.rules import RULES, best_rules, rules_like, speedup_over_rules
from evaluation.reporting.run_data import RunData

KICKER = "placelab: the report of a training run"


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write a run's page, `report.html` in its folder unless told where, from what the folder holds.

    What it lacks is said in a sentence.

    Raises InputError if there is no such folder, or a file in it cannot be read.
    """
    run = RunData.of(folder)
    best = BestPlan.of(run)
    shown = [(key, run.meta[key]) for key in ("placer", "network", "seed", "updates", "simulations") if key in run.meta]
    facts = [(key, f"{value:,}" if isinstance(value, int) else str(value)) for key, value in shown]
    sections = [
        *_glance(run, best), learning_section(run), _zero_shot(run), _tuning(run),
        Section(TITLE, (best,)) if isinstance(best, str) else best.details(), _provenance(run),
    ]  # fmt: skip
    path = folder / "report.html" if out is None else out
    return results_page(path, run.name, KICKER, sections, facts=facts, command=run.command)


def _glance(run: RunData, best: BestPlan | str) -> list[Section]:
    """What is asked first, of the policy and of its best plan."""
    sections = [] if isinstance(best, str) else [best.glance()]
    if run.evaluation is None or run.evaluation.notes.learned not in {each.placer for each in run.evaluation.records}:
        return sections
    learned, comparison = run.evaluation.notes.learned, Comparison(run.evaluation.records)
    column, problems = comparison.placers.index(learned), len(comparison.problems)
    wins, fitting = int((comparison.over_best[:, column] == 1.0).sum()), int(comparison.fits[:, column].sum())
    like = rules_like(comparison, learned)
    tiles = (
        *([] if like == RULES else [_over_rules(comparison, learned, like, "rule for op placements")]),
        _over_rules(comparison, learned, RULES, "rule for any kind of plan"),
        Tile(f"{wins} of {problems}", f"problems on which it is the fastest of {len(comparison.placers)} placers"),
        Tile(f"{fitting} of {problems}", "plans that fit in memory", is_bad=fitting < problems),
    )
    return [Section("On graphs that it never saw", tiles=tiles), *sections]


def _over_rules(comparison: Comparison, learned: str, rules: tuple[str, ...], what: str) -> Tile:
    """How many times as fast its plans are as the best rule's of each problem."""
    faster = speedup_over_rules(comparison, learned, rules)
    often = Counter(rule.placer for rule in best_rules(comparison, rules) if rule is not None).most_common(1)
    about = ["no search, no learning", *([f"most often {often[0][0]}"] if often else [])]
    if faster.has_interval:
        about.append(f"in the geometric mean; 95% interval {ratio(faster.low)} to {ratio(faster.high)}")
    return faster_tile(faster.value, f"as fast as the best {what} of each problem", "; ".join(about))


def _provenance(run: RunData) -> Section:
    versions = run.meta.get("versions", {})
    said = [
        "Equal seeds, versions and settings give equal results, up to the order in which floating-point sums are taken."
        if versions
        else "This folder does not say which versions it was made with (meta.json is missing)."
    ]
    if not run.command:
        said.append("Nor does it say which command made it (command.txt is missing).")
    return Section(
        "How to repeat it",
        tuple(said),
        commands=tuple(filter(None, [run.command])),
        sheets=(Sheet(("", "version"), tuple(versions.items())),) if versions else (),
        code=(("All settings", run.config),) if run.config else (),
    )


def _zero_shot(run: RunData) -> Section:
    title, content = "Zero-shot: graphs it never saw", run.evaluation
    if content is None:
        return Section(
            title, (f"Not evaluated yet: `placelab evaluate {run.folder}` compares it with the other placers.",)
        )
    if not content.records:
        return Section(title, ("The evaluation holds no records (evaluation.json).",))
    comparison, learned = Comparison(content.records), content.notes.learned
    said = findings(comparison, learned) if learned in comparison.placers else []
    return Section(
        title,
        tuple(said),
        sheets=(placer_sheet(comparison, (learned,)),),
        notes=(*comparison.ordering, *comparison.timing, *comparison.notes, *content.notes.remarks),
        folded=(("Step times on each problem", problem_sheet(comparison)),),
    )


def _tuning(run: RunData) -> Section:
    title, metrics = "Fine-tuned on one problem", run.tuning_metrics
    if not (run.tuned or metrics):
        missing = f"Not fine-tuned yet: `placelab finetune {run.folder}` does it, within a number of simulations."
        return Section(title, (missing,))
    content = run.tuned or EvaluationFile(records=())
    comparison, learned, before = Comparison(content.records), content.notes.learned, content.notes.before
    notes, said = content.notes.remarks, list[str]()
    if learned in comparison.placers and before in comparison.placers:
        said = tuning_findings(comparison, before, learned)
        notes = (*comparison.ordering, *comparison.timing, *comparison.notes, *notes)
    if run.tuned is None:
        said = ["The tuned policy was not compared with other placers (finetune/evaluation.json is missing)."]
    figures: list[tuple[Markup, str]] = []
    if curves := present(metrics, TUNING_CURVES):
        others = levels(comparison, (learned, before), curves[0])
        caption = "Dashed: the fastest of the other placers on the same problem." if others else ""
        figures.append((curve_figure({run.name: [metrics]}, curves, others), caption))
    sheet = placer_sheet(comparison, (learned,), single=len(comparison.problems) == 1) if run.tuned else None
    return Section(title, tuple(said), figures=tuple(figures), sheets=(sheet,) if sheet else (), notes=notes)
