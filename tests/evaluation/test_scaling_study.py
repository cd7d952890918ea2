"""The study of scaling: curves against closed forms, what counts, and a whole one of tiny trainings."""

from pathlib import Path

import numpy as np
import pytest

from evaluation.studies.pieces import load_pieces
from evaluation.studies.scaling import trainings
from evaluation.studies.scaling.__main__ import Scaling
from evaluation.studies.scaling.findings import ScalingFindings
from evaluation.studies.scaling.fits import FORMS, LOGARITHM, POWER_LAW, Form, likelier
from evaluation.studies.scaling.trainings import BEST, GREEDY, SEARCH, Outcome
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats

LENGTHS = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
TINY = (
    *trainings.SMALLER[:3],
    "network=sequential:width=8,hidden=8,heads=1,one_device=true,live_outputs=true,order=runtime",
    "problems.world.units=[8,12]",
    "problems.world.devices=[2,3]",
    "problems.world.pairs=[24,48]",
    "problems.world.problems=4",
    "ppo.problems_per_update=2",
    "ppo.samples=2",
)


@pytest.mark.parametrize(
    ("form", "y"), [(POWER_LAW, 0.1 + 0.3 * LENGTHS**-0.5), (LOGARITHM, 0.5 - 0.1 * np.log(LENGTHS))]
)
def test_curves_go_through_points_of_their_form_and_that_form_is_preferred(form: Form, y: Floats) -> None:
    fitted = form.fitted(LENGTHS, y[None])
    assert form.at(fitted, np.array([1.0, 160.0]))[0, 0] == pytest.approx(y[0], abs=1e-3)
    x, several = np.repeat(LENGTHS, 3), np.repeat(y, 3) + np.tile([-0.001, 0.0, 0.001], 5)
    assert likelier(x, several, FORMS) is form
    exact = {POWER_LAW: {"floor": 0.1, "gap": 0.3, "exponent": 0.5}, LOGARITHM: {"start": 0.5, "slope": 0.1}}[form]
    assert {name: float(value[0]) for name, value in fitted.items()} == pytest.approx(exact, abs=0.01)


def test_a_power_law_never_falls_below_the_best_known_nor_rises() -> None:
    falling = POWER_LAW.fitted(LENGTHS, (0.2 - 0.06 * np.log(LENGTHS))[None])
    assert falling["floor"][0] == 0.0
    rising = POWER_LAW.fitted(LENGTHS, LENGTHS[None])
    assert rising["gap"][0] == 0.0
    assert rising["floor"][0] == pytest.approx(LENGTHS.mean())


def some(updates: int, seed: int, *seconds: float | None) -> Outcome:
    """A policy with these step times, greedy or not."""
    return Outcome(updates=updates, seed=seed, step_seconds={GREEDY: [*seconds], BEST: [*seconds]})


def test_what_does_not_fit_counts_three_and_unfinished_lengths_do_not_count() -> None:
    search = Outcome(updates=0, seed=0, step_seconds={SEARCH: [1.0, 2.0, 1.0]})
    done = [
        some(10, 0, 2.0, 4.0, None),
        some(10, 1, 2.0, 4.0, 1.0),
        some(20, 0, 1.0, 2.0, 2.0),
        some(20, 1, 1.0, 2.0, 2.0),
    ]
    found = ScalingFindings.of([search, *done, some(40, 0, 0.1, 0.1, 0.1)])
    assert found.lengths == [10, 20]
    assert found.best_known.tolist() == [1.0, 2.0, 1.0]
    assert np.exp(found.logs(GREEDY))[0].ravel() == pytest.approx([2, 2, 3, 2, 2, 1])
    first, second = found.over_best(GREEDY)
    assert first.value == pytest.approx((2**4 * 3) ** (1 / 6))
    assert (second.low, second.high) == pytest.approx((second.value, second.value)), "one problem of each kind"
    assert first.low < first.value < first.high, "seeds differ"
    assert found.unfit(GREEDY) == [1 / 6, 0.0]
    assert found.curve(GREEDY, LOGARITHM).ratio(2.0).value == pytest.approx(second.value / first.value)


def test_a_study_resumes_and_says_what_more_updates_would_buy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainings, "SMALLER", TINY)
    monkeypatch.setattr(trainings, "SEARCHED", 20)
    with pytest.raises(InputError, match="at least one update"):
        Scaling(out=tmp_path, points=0).write()
    study = Scaling(out=tmp_path, updates=1, points=2, seeds=1, problems=3)
    with pytest.raises(InputError, match="two lengths"):
        Scaling(out=tmp_path, updates=1, points=1, seeds=1, problems=3).write()
    before = {path: path.read_bytes() for path in (tmp_path / "pieces").iterdir()}
    written = study.write().read_text()
    assert all(path.read_bytes() == bytes_ for path, bytes_ in before.items()), "nothing is done twice"
    assert {(each.updates, each.seed) for each in load_pieces(tmp_path, Outcome)} == {(0, 0), (1, 0), (2, 0)}
    assert "python -m evaluation.studies.scaling --updates 1 --points 2 --seeds 1 --problems 3" in written
    assert "10 times more would buy" in written
    assert (tmp_path / "scaling.png").is_file()
