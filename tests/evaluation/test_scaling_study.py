"""The study of scaling: a clock that loses no second, what follows from made-up updates, and a whole study, tiny."""

from pathlib import Path

import pytest

from evaluation.studies.scaling import model
from evaluation.studies.scaling.__main__ import study
from evaluation.studies.scaling.clock import DECODE, ENCODE, LEARN, PARTS, SEARCH, SIMULATE, Clock
from evaluation.studies.scaling.document import MORE, NUMBERS, RANKS, WORKERS, findings
from evaluation.studies.scaling.measure import COUNTS, PHASES, Measured, Split, Timed, Update
from evaluation.studies.scaling.model import Network
from graphs.foundation.errors import InputError

NETWORK = Network("made up", 0.001, 1e6)


def split(learn: float, items: list[float], phase: str = "ppo") -> Split:
    """Three equal updates that learn, and search."""
    update = Update({LEARN: learn, SEARCH: sum(items)}, {SEARCH: items})
    return Split(phase, len(items), 1, 1000, (update,) * 3)


def test_a_clock_gives_every_second_to_one_part() -> None:
    times = iter([0.0, 1, 3, 6, 10, 15, 21, 28, 36])
    clock = Clock(lambda: next(times))
    with clock.of(LEARN):  # from 1 to 36, but for what interrupts it
        with clock.of(DECODE), clock.of(ENCODE):
            pass
        clock.around(SIMULATE, abs)(-1)
    assert clock.seconds == {LEARN: 2 + 6 + 8, DECODE: 3 + 5, ENCODE: 4, SIMULATE: 7}


def test_items_go_to_the_worker_that_is_free_first() -> None:
    assert model.makespan([3.0, 1.0, 1.0, 1.0], 2, 0.0) == 3.0
    assert model.makespan([3.0, 1.0, 1.0, 1.0], 1, 0.0) == 6.0
    assert model.makespan([1.0, 1.0, 1.0], 1000, 2.0) == 7.0, "the last is given out after three times two seconds"
    assert model.makespan([], 4, 1.0) == 0.0


def test_an_update_takes_what_the_learner_and_the_workers_take() -> None:
    found = split(1.0, [1.0] * 8)
    assert model.same_by_workers(found, 1, 0.0) == 1.0
    assert model.same_by_workers(found, 2, 0.0) == pytest.approx(9 / 5)
    assert model.same_by_workers(found, 1000, 0.0) == pytest.approx(9 / 2), "no item is divided"
    assert model.larger_by_workers(found, 1000, 0.0) == pytest.approx(9000 / 1008)
    assert model.bottleneck(found, 0.0) == pytest.approx(8.0)
    assert model.most(found, 0.0) == pytest.approx(9.0)
    assert model.most(found, 0.125) == pytest.approx(9 / 2), "giving out items is the learner's work"


def test_ranks_wait_for_the_slowest_and_for_each_other() -> None:
    assert NETWORK.all_reduce(1, 1e6) == 0.0
    assert NETWORK.all_reduce(2, 1e6) == pytest.approx(2 * (0.001 + 0.5))
    even, uneven = Update({LEARN: 1.0, DECODE: 1.0}, {}), Update({LEARN: 3.0, DECODE: 2.0}, {})
    assert model.by_ranks([even, even], 0.5) == 2.5
    assert model.by_ranks([even, uneven], 0.5) == 5.5
    assert model.same_by_ranks(split(1.0, [1.0] * 8), 2, 0.0) == pytest.approx(2.0)
    speeds = [model.larger_by_ranks(split(1.0, [1.0]), number, NETWORK) for number in NUMBERS]
    assert speeds[0] == 1.0
    assert all(speed < number for speed, number in zip(speeds[1:], NUMBERS[1:], strict=True))


def test_a_share_of_an_update_has_its_items_and_an_even_part_of_the_rest() -> None:
    update = Update({LEARN: 2.0, SEARCH: 7.0}, {SEARCH: [1.0, 2.0, 3.0]})  # a second of light items is done at home
    shares = [each for (each,) in model.dealt([update], 2)]
    assert [each.items[SEARCH] for each in shares] == [[1.0, 3.0], [2.0]]
    assert sum(model.alone(each) for each in shares) == pytest.approx(model.alone(update))
    assert model.learner(update) == 3.0


def test_findings_compare_predictions_with_what_was_measured() -> None:
    pieces = [Measured(split(1.0, [1.0] * 8, phase)) for phase in PHASES]
    for phase in PHASES:
        for by, seconds in (("workers", (9.0, 5.0)), ("ranks", (9.0, 5.0))):
            pieces += [
                Measured(timed=Timed(phase=phase, by=by, count=count, seconds=each, all_reduce=0.01))
                for count, each in zip(COUNTS, seconds, strict=True)
            ]
    found = findings(pieces)[0]
    checks = {each.by: each for each in found.checks()}
    assert checks["workers"].predicted == checks["workers"].measured == pytest.approx(1.8)
    assert checks["ranks"].error > 0, "ranks were to be faster"
    assert [part for part, _, _ in found.shares()] == list(PARTS)
    assert sum(share for _, _, share in found.shares()) == pytest.approx(1.0)
    assert found.curves()[WORKERS][0] == found.curves()[RANKS][0] == 1.0
    with pytest.raises(InputError, match="is not measured yet"):
        findings(pieces[:-1])


def test_a_whole_study_writes_its_document_and_does_nothing_twice(tmp_path: Path) -> None:
    path = study(updates=1, small=True, out=tmp_path)
    text = path.read_text()
    assert f"The speed-up of {MORE} over one" in text
    assert "| 1,000 |" in text
    assert (tmp_path / "scaling.png").exists()
    pieces = {each: each.stat().st_mtime_ns for each in (tmp_path / "pieces").iterdir()}
    assert len(pieces) == len(PHASES) * (1 + 2 * len(COUNTS))
    assert study(updates=1, small=True, out=tmp_path).read_text() == text
    assert pieces == {each: each.stat().st_mtime_ns for each in (tmp_path / "pieces").iterdir()}
