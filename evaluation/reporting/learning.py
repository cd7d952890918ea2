"""How a policy learned: curves over the updates of its training, and of its fine-tuning on a problem."""

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from evaluation.comparing.comparison import Comparison
from evaluation.drawing.learning_curves import Curve, Metrics, Runs, column, learning_curves
from evaluation.drawing.sections import Section
from evaluation.reporting.run_data import RunData

TRAINING_CURVES = (
    Curve("step_over_bound", "Samples: step time over the bound (lower is better)"),
    Curve("fitting", "Samples: share that fits in memory (higher is better)"),
    Curve("ep_rew_mean", "Samples: mean reward (higher is better)"),
    Curve("entropy", "Entropy of the policy, nats per decision"),
    Curve("approx_kl", "Change of the policy in an update: approximate KL divergence, nats per decision"),
)
VALIDATION_CURVES = (
    Curve("step_over_bound", "Validation: step time over the bound (lower is better)", "points"),
    Curve("fitting", "Validation: share of plans that fit (higher is better)", "points"),
)
TUNING_CURVES = (
    Curve("best_seconds", "Best step time so far, in seconds (lower is better)", "best"),
    Curve("step_over_bound", "Samples: step time over the bound (lower is better)"),
)
LAST = 10  # a tenth of the training is its first part, and its last


def learning_section(run: RunData) -> Section:
    """What the run learned from its samples, and how its weights were validated."""
    title = "Learning"
    curves = present(run.metrics, TRAINING_CURVES)
    if not curves:
        return Section(title, ("This folder holds no training metrics (metrics.jsonl).",))
    said = [f"{len(run.metrics):,} updates."]
    first, last = first_and_last(run.metrics)
    if np.isfinite(last):
        said.append(
            f"In the first tenth of the training a sampled placement took {first:.2f} times the lower bound, in the "
            f"last tenth {last:.2f} times."
        )
    figures = [(curve_figure({run.name: [run.metrics]}, curves), "")]
    if validated := present(run.validation, VALIDATION_CURVES):
        said.append(validated_sentence(run.validation))
        caption = "What the policy's most likely plans were worth on problems that it does not learn from."
        figures.append((curve_figure({run.name: [run.validation]}, validated), caption))
    if run.tensorboard:
        said.append("TensorBoard shows all that was logged:")
    return Section(title, tuple(said), figures=tuple(figures), commands=tuple(filter(None, [run.tensorboard])))


def first_and_last(metrics: Metrics) -> tuple[float, float]:
    """Mean ratio of sampled step times to the lower bound, in the first tenth of a training and the last.

    NaN where there are fewer than ten updates.
    """
    ratio = column(metrics, "step_over_bound")
    ratio = ratio[np.isfinite(ratio)]
    tenth = len(ratio) // LAST
    return (float(ratio[:tenth].mean()), float(ratio[-tenth:].mean())) if tenth else (np.nan, np.nan)


def kept_weights(validation: Metrics) -> Mapping[str, float | None] | None:
    """The record of the weights that a run kept, or would keep if it were stopped now; None without validation."""
    kept = [record for record in validation if record.get("kept")]
    return kept[-1] if kept else None


def validated_sentence(validation: Metrics) -> str:
    """Which weights were kept, and how they did."""
    kept = kept_weights(validation)
    if kept is None:
        last = validation[-1]
        return (
            f"Its plans of graphs to evaluate on, by which no weights are chosen, were looked at {len(validation)} "
            f"times. At last they take {last['step_over_bound']:.2f} times the lower bound, and "
            f"{last['fitting']:.0%} of them fit."
        )
    return (
        f"Of {len(validation)} validated weights those of update {kept['update']:,.0f} are the best: their plans take "
        f"{kept['step_over_bound']:.2f} times the lower bound, and {kept['fitting']:.0%} of them fit."
    )


def levels(comparison: Comparison, own: tuple[str, str], curve: Curve) -> dict[str, float]:
    """What the four fastest of the other placers reach on the one problem of the curve, in the curve's unit."""
    if len(comparison.problems) != 1:
        return {}
    values = comparison.fitting_seconds[0] if curve.column == "best_seconds" else comparison.over_bound[0]
    others = [
        (float(value), comparison.labels[placer])
        for placer, value in zip(comparison.placers, values, strict=True)
        if placer not in own and np.isfinite(value)
    ]
    return {label: value for value, label in sorted(others)[:4]}


def present(metrics: Metrics, curves: Sequence[Curve]) -> list[Curve]:
    """Those curves that the metrics hold a number of."""
    return [curve for curve in curves if np.isfinite(column(metrics, curve.column)).any()]


def curve_figure(runs: Runs, curves: Sequence[Curve], levels: Mapping[str, float] | None = None) -> Markup:
    """The curves of runs, by their names, over simulations or, where not all metrics count those, updates."""
    each = [metrics for seeds in runs.values() for metrics in seeds]
    counted = all(np.isfinite(column(metrics, "simulations")).any() for metrics in each)
    return Markup(learning_curves(runs, curves, x="simulations" if counted else "update", levels=levels))
