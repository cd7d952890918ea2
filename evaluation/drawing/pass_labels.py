"""Labels of passes in a picture of a whole plan's step, where they have room."""

from matplotlib.axes import Axes

from evaluation.drawing.figures import BLUE, GREEN, RED
from evaluation.drawing.step_boxes import StepLanes
from evaluation.drawing.step_figure import COLOURS

DARK = (BLUE, GREEN, RED)  # white is legible on them
LABELS = 800  # at most in a chart
CHARACTER = 0.0115  # of the width of a chart, with 7 points
MOST = 0.8  # of the passes have room for whole labels, if these are written


def write_labels(axes: Axes, step: StepLanes, seconds: float, scale: float) -> None:
    """Write labels into passes where they fit, on an axis as long as `seconds`, in units of 1 / `scale` seconds.

    If few labels fit, they are the micro-batches alone, if there are several.
    """
    passes = step.timeline.passes
    if passes is None:
        return
    boxes = step.boxes.of(step.boxes.label >= 0)
    later = step.later[step.boxes.label >= 0]
    length = ((boxes.finish - boxes.start) / (seconds or 1.0)).tolist()
    labels = [step.labels[label] for label in boxes.label.tolist()]
    fits = [_fits(label, each) for label, each in zip(labels, length, strict=True)]
    if sum(fits) < MOST * len(fits) and passes.micro_batch.max(initial=0) > 0:
        numbers = passes.micro_batch[boxes.label].tolist()
        labels = [str(number) if number >= 0 else "" for number in numbers]
        fits = [_fits(label, each) for label, each in zip(labels, length, strict=True)]
    if sum(fits) > LABELS:
        return
    middle = ((boxes.start + boxes.finish) / 2 * scale).tolist()
    columns = zip(labels, fits, middle, boxes.lane.tolist(), boxes.kind.tolist(), later.tolist(), strict=True)
    for label, fit, x, lane, kind, shade in columns:
        if fit:
            ink = "white" if COLOURS[step.kinds[kind]] in DARK and not shade else "black"
            axes.text(x, lane, label, color=ink, fontsize=7, ha="center", va="center_baseline")


def _fits(label: str, length: float) -> bool:
    """Whether a label fits into a pass of so much of the step."""
    return length > CHARACTER * (0.6 + len(label))
