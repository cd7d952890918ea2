"""What is said where a pipeline's step is predicted otherwise for processes than by simulation of its ops."""

import pytest

from evaluation.measuring.measured_table import passes_sentence


@pytest.mark.parametrize("predicted", [0.01, 0.0104, 0.0096])
def test_equal_predictions_are_not_explained(predicted: float) -> None:
    assert not passes_sentence(0.01, predicted)


def test_both_predictions_are_said() -> None:
    said = passes_sentence(0.01, 0.0197)
    assert "say 10.0 ms" in said
    assert "the 19.7 ms predicted here" in said
