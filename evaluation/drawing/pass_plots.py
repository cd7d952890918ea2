"""What a Gantt chart of a whole plan has besides boxes: colours of passes, their labels, and shades of later stages."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from envs.timelines.pass_spans import PassSpans
from evaluation.drawing.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY, YELLOW

# In the order of SpanKind, then what links do.
OF_PASSES = {
    "forward": BLUE, "backward": ORANGE, "input gradient": RED, "weight gradient": YELLOW, "recomputation": SKY,
    "update": GREEN, "transfer": GREY, "sums of gradients": PURPLE,
}  # fmt: skip
DARK = (BLUE, GREEN, RED)  # white is legible on them
LABELS = 800  # at most in a chart
CHARACTER = 0.0115  # of the width of a chart, with 7 points
LIGHTER = 0.45  # how much white is over the last of the stages of a device
MOST = 0.8  # of the passes have room for whole labels, if these are written


def label_passes(axes: Axes, passes: PassSpans, step_seconds: float, scale: float) -> list[Patch]:
    """Write labels into passes where they fit, and lighten later stages; returns what the legend has to say of that.

    If few labels fit, they are the micro-batches alone, if there are several. The rows of the devices are the first
    ones. `scale` is what seconds are multiplied by.
    """
    length = (passes.finish - passes.start) / (step_seconds or 1.0)
    labels = passes.labels
    fits = [_fits(label, each) for label, each in zip(labels, length.tolist(), strict=True)]
    if sum(fits) < MOST * len(fits) and passes.micro_batch.max(initial=0) > 0:
        labels = [str(number) if number >= 0 else "" for number in passes.micro_batch.tolist()]
        fits = [_fits(label, each) for label, each in zip(labels, length.tolist(), strict=True)]
    if sum(fits) > LABELS:
        return []
    colours, shade = list(OF_PASSES.values()), (LIGHTER * passes.later).tolist()
    for span, (label, fit) in enumerate(zip(labels, fits, strict=True)):
        begin, end = float(passes.start[span]) * scale, float(passes.finish[span]) * scale
        device, colour = float(passes.device[span]), colours[passes.kind[span]]
        if shade[span] > 0:
            box = Rectangle((begin, device - 0.38), end - begin, 0.76, color="white", alpha=shade[span], linewidth=0)
            axes.add_patch(box)
        if fit:
            ink = "white" if colour in DARK and not shade[span] else "black"
            axes.text((begin + end) / 2, device, label, color=ink, fontsize=7, ha="center", va="center_baseline")
    return [Patch(color="#bfdbec", label="lighter: later stages")] if any(shade) else []


def _fits(label: str, length: float) -> bool:
    """Whether a label fits into a pass of so much of the step."""
    return length > CHARACTER * (0.6 + len(label))
