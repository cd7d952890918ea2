"""The scatter of measured steps: a point for each that is compared, by how many GPUs it ran on."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from evaluation.studies.measured.findings import VariantFindings
from evaluation.studies.measured.rows import FITTED
from evaluation.studies.measured.scatter import paint
from tests.evaluation.test_measured_study import PLAIN, compared, row


def test_the_scatter_has_a_point_for_each_step_that_is_compared() -> None:
    setting = next(batch for batch in range(99) if not row(source=FITTED, global_batch=batch).judges)
    steps = [compared(2.0, 1.0), compared(1.0, 1.2, gpus=2, dp=2), compared(4.0, 5.0, gpus=4, dp=4),
             compared(1.0, 9.0, source=FITTED, global_batch=setting), compared(1.0, 7.0, use="ratio")]  # fmt: skip
    figure = Figure()
    paint(figure, VariantFindings(PLAIN, steps))
    drawn = {str(line.get_label()): line.get_xydata() for line in figure.axes[0].lines if ":" in str(line.get_label())}
    assert {name: np.asarray(points).tolist() for name, points in drawn.items()} == {
        "may set constants: 1 steps, median error 800.0%": [[1.0, pytest.approx(9.0)]],
        "several GPUs: 2 steps, median error 22.5%": [[1.0, pytest.approx(1.2)], [4.0, pytest.approx(1.25)]],
        "one GPU: 1 steps, median error 50.0%": [[2.0, pytest.approx(0.5)]],
    }
