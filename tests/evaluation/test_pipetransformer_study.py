"""The study of PipeTransformer: the order of its parts as published, and a whole document, tiny."""

from pathlib import Path

import numpy as np
import pytest

from evaluation.studies.pipetransformer import __main__ as command
from evaluation.studies.pipetransformer import document, published
from evaluation.studies.pipetransformer.document import PARTS
from evaluation.studies.pipetransformer.fit import Fit
from evaluation.studies.pipetransformer.published import ALL, FREEZE, NO_CACHE, NO_REPLICAS, transition_seconds
from evaluation.studies.pipetransformer.training import SPENT, VIT, Machine, Model, Training
from placers.elastic.intervals import Setup

FITTED = Machine(0.9, 52e-6, one_by_one=True)  # rounded: what the study finds from another figure of the paper
TINY = Model("tiny", "vit:layers=4,width=32,heads=2,image=32,batch=4", 4, 16, "adam", 1)


@pytest.fixture(scope="module")
def vit() -> Training:
    return Training(VIT, FITTED)


def test_parts_come_in_the_published_order(vit: Training) -> None:
    """All, then without the cache, then without further pipelines; freezing alone is no gain."""
    found = {variant: vit.speedup(parts=parts) for variant, parts in PARTS.items()}
    assert found[ALL] > found[NO_CACHE] > found[NO_REPLICAS] > 1 >= found[FREEZE]
    assert found[NO_CACHE] == pytest.approx(published.SPEEDUPS[NO_CACHE], rel=0.1)
    assert all(vit.epochs(parts=parts).fits for parts in PARTS.values())


def test_more_alpha_is_more_speed(vit: Training) -> None:
    for data in (0, 50_000):
        speedups = [vit.speedup(alpha, data=data) for alpha in sorted(published.BY_ALPHA)]
        assert speedups == sorted(speedups)


def test_what_a_step_is_spent_on_adds_up(vit: Training) -> None:
    for setup in (Setup(4, 0, 8, 2, 16), Setup(12, 11, 1, 16, 4), Setup(9, 7, 2, 2, 16)):
        step = vit.step(setup)
        assert sum(step.spent[share] for share in SPENT) == pytest.approx(step.seconds)
        assert (step.spent["cache"] > 0) == (setup.cached > 0)


def test_changes_take_what_the_log_says(vit: Training) -> None:
    epochs = vit.epochs(parts=PARTS[ALL])  # of 8, 8, 4, 2, 2 and 1 devices; six changes of frozen layers
    of_two = 3.8 + 12
    assert epochs.transition_seconds == pytest.approx((16.6 + 5) + (8.3 + 23) + 4 * of_two)
    assert vit.epochs().transition_seconds == 0
    assert transition_seconds(1) == pytest.approx(of_two)
    assert epochs.seconds(1000) == pytest.approx(1000 * epochs.sample_seconds + epochs.transition_seconds)


def test_one_process_launches_the_ops_of_all_its_devices() -> None:
    assert FITTED.cluster(8).hold_seconds.tolist() == pytest.approx([8 * 52e-6] * 16)
    assert Machine(launch_seconds=1e-5).cluster(8).hold_seconds.tolist() == [1e-5] * 16


def test_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "VIT", TINY)
    monkeypatch.setattr(document, "BERT", TINY)
    monkeypatch.setattr(published, "BY_ALPHA", {published.ALPHA: 1.0})
    monkeypatch.setattr(command, "fitted", lambda: Fit(FITTED, np.arange(6.0)))
    written = command.study(out=tmp_path).read_text()
    assert (tmp_path / "pipetransformer.png").exists()
    assert written.startswith("# PipeTransformer")
    assert written.count("| all parts |") == 4
    assert "52 µs to launch" in written
