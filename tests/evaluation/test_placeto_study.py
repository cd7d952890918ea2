"""The Placeto study: statistics on made-up records, what is kept and not done again, and a whole one of tiny graphs."""

import json
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from evaluation.records.record import Record
from evaluation.records.statistics import until
from evaluation.studies.pieces import SavedJob, load_pieces, load_size
from evaluation.studies.placeto_generalisation import methods
from evaluation.studies.placeto_generalisation.__main__ import Generalisation
from evaluation.studies.placeto_generalisation.document import FamilyFindings, ended, save
from evaluation.studies.placeto_generalisation.methods import (
    OF_A_SEED,
    PLACETO,
    PPO,
    RNN,
    FamilyResult,
    Kind,
    PlacetoSize,
    Point,
    spread,
)  # fmt: skip
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from tests.evaluation.some_records import record as some_record
from tests.oracle.toys import random_graph, toy_cluster

TUNED = f"{PLACETO}+finetuned"
TINY = PlacetoSize(
    groups=4, train_graphs=2, test_graphs=2, updates=3, ppo_updates=2, rnn_updates=2, rnn_hidden=8, simulations=45,
    scratch_graphs=1, scratch_simulations=60, reference_simulations=20,
)  # fmt: skip


def record(problem: str, placer: str, seconds: float, **others: Any) -> Record:
    return some_record(problem, placer, seconds, simulations=9, curve=((3, 2 * seconds), (8, seconds)), **others)


def piece(kind: Kind, seed: int, *records: Record, training: tuple[Point, ...] = ()) -> FamilyResult:
    return FamilyResult(family="ptb", kind=kind, seed=seed, seconds=6.0, records=records, training=training)


def made_up() -> FamilyFindings:
    """Two graphs, whose best known take 1 s and 2 s."""
    training = tuple(Point(4 * i, 40 * i, 4.0 / i) for i in range(1, 21))
    pieces = [
        piece("reference", 0, record("a", "annealing", 1.0), record("b", "annealing", 4.0)),
        piece("random", 0, record("a", "random", 0.5, fits=False), record("b", "random", 8.0)),
    ]
    for seed, (one, other) in enumerate(((2.0, 4.0), (4.0, 8.0))):
        zero_shot = record("a", PLACETO, one, seed=seed), record("b", PLACETO, other, seed=seed)
        tuned = record("a", TUNED, 1.0, seed=seed), record("b", TUNED, 2.0, seed=seed)
        pieces.append(piece("placeto", seed, *zero_shot, *tuned, training=training))
        late = tuple(Point(point.episodes, point.simulations // 10, point.over_bound) for point in training)
        pieces.append(piece("terminal", seed, training=late))
        scratch = record("a", TUNED, 1.04, seed=seed), record("a", f"{RNN}+finetuned", 1.5, seed=seed)
        pieces.append(piece("scratch", seed, *scratch))
    return FamilyFindings(PlacetoSize(), pieces)


def test_step_times_are_relative_to_the_best_fitting_placement_of_each_graph() -> None:
    results = made_up()
    assert results.best_known == {"a": 1.0, "b": 2.0}, "what does not fit is no best"
    zero_shot = results.standing(("placeto", PLACETO), results.columns["ptb"])
    assert zero_shot.value == pytest.approx(math.sqrt(2 * 4)), "one seed takes twice, the other four times as long"
    assert (zero_shot.low, zero_shot.high) == pytest.approx((2.0, 4.0))
    assert zero_shot.count == 2, "a value per seed"
    assert results.standing(("placeto", TUNED), results.columns["ptb"]).value == 1.0
    assert results.standing(("rnn", RNN), results.columns["ptb"]).count == 0, "not done yet"


def test_placements_that_do_not_fit_are_counted_and_not_averaged() -> None:
    results = made_up()
    assert results.standing(("random", "random"), results.columns["ptb"]).value == 4.0
    assert results.frame.fitting(("random", "random")) == 0.5
    assert results.frame.unfit(("random", "random")) == 1


def test_a_search_has_found_what_its_curve_says() -> None:
    curve = ((3, 2.0), (8, 1.0))
    assert [until(curve, seconds) for seconds in (2.5, 2.0, 1.5, 0.9)] == [3, 3, 8, math.inf]


def test_a_training_ends_with_its_latest_tenth_within_the_simulations() -> None:
    training = [Point(i, 10 * i, float(i)) for i in range(1, 21)]
    assert ended(training) == pytest.approx(math.sqrt(19 * 20))
    assert ended(training, 55) == pytest.approx(math.sqrt(4 * 5))
    assert math.isnan(ended(training, 5))
    assert ended([Point(1, 10, None), Point(2, 20, 3.0)] * 10) == pytest.approx(3.0), "nothing fitted in the first"


def test_the_document_says_who_is_faster(tmp_path: Path) -> None:
    text = save(made_up(), tmp_path, "python -m study").read_text()
    assert "| Placeto, zero-shot | 2.828 [2.000, 4.000] | 100% |" in text
    assert "| random placement | 4.000 | 50% |" in text
    assert "| ptb | improvement | 80 | 800 | 0.205 | 2.828 |" in text, "at 80 simulations of 800, two updates"
    assert "| ptb | terminal | 80 | 80 | 0.205 | 0.205 |" in text
    assert "| ptb | Placeto | 1.040 | 8 | 2 of 2 | 8 |" in text
    assert "| ptb | RNN | 1.500 | 8 | 0 of 2 | - |" in text
    assert "- ptb, Placeto, zero-shot: slower than annealing, long (2.00); faster than random placement (0.71)." in text
    assert "- ptb, Placeto, fine-tuned: faster than random placement (0.25), annealing, long (0.71)." in text
    assert "| Placeto | 2.828 [2.000, 4.000] |" in text, "zero-shot over fine-tuned"
    assert "| RNN | - |" in text
    assert "Simulations of each training: Placeto 800 (80 placements to their end)." in text
    assert "    python -m study\n" in text


def test_some_graphs_are_spread_over_a_split() -> None:
    specs = [str(i) for i in range(16)]
    assert spread(specs, 4) == ["0", "5", "10", "15"]
    assert spread(specs, 99) == specs
    assert spread(specs, 1) == ["0"]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of four ops in place of captured ones."""

    def problems(family: str, which: str, size: PlacetoSize) -> tuple[Problem, ...]:
        count, first = (size.train_graphs, 0) if which == "train" else (size.test_graphs, 100)
        graphs = (random_graph(size.groups + i, first + i) for i in range(count))
        return tuple(Problem(graph, toy_cluster(2, memory=1e4)) for graph in graphs)

    monkeypatch.setattr(methods, "problems_of", problems)


@pytest.mark.usefixtures("tiny")
def test_a_study_goes_on_where_it_was_stopped_and_writes_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    do = SavedJob.do

    def noted(piece: SavedJob) -> None:
        if len(done) == 5:
            done.append("stopped")
            raise KeyboardInterrupt
        done.append(piece.path.stem)
        do(piece)

    monkeypatch.setattr(SavedJob, "do", noted)
    with pytest.raises(KeyboardInterrupt):
        Generalisation(families="ptb", seeds=1, out=tmp_path, settings=TINY).write()
    assert len(load_pieces(tmp_path, FamilyResult)) == 5
    path = Generalisation(families="ptb", seeds=1, out=tmp_path, settings=TINY).write()
    done.remove("stopped")
    assert done == [f"ptb-{kind}-0" for kind in ("reference", *OF_A_SEED)], "each once"

    assert load_size(tmp_path, PlacetoSize) == TINY
    pieces = load_pieces(tmp_path, FamilyResult)
    by_kind = {each.kind: each for each in pieces}
    names = [r.placer for r in by_kind["placeto"].records]
    assert sorted(set(names)) == [PLACETO, TUNED]
    assert all(r.simulations <= TINY.simulations for r in by_kind["rnn"].records)
    assert {r.simulations for r in by_kind["placeto"].records if r.placer == PLACETO} == {0}, "zero-shot"
    episodes = [point.episodes for point in by_kind["placeto"].training]
    assert episodes == [2, 4, 6], "an episode on each of two graphs in each update"
    assert [point.episodes for point in by_kind["ppo"].training] == [16, 32]
    assert {r.placer for r in by_kind["ppo"].records} == {PPO, f"{PPO}+finetuned"}
    improvement, terminal = (by_kind[kind].training[-1].simulations for kind in ("placeto", "terminal"))
    assert (improvement, terminal) == (3 * (4 + 5 + 2), 6), "every step and the start, or the end alone"
    assert [p.episodes for p in by_kind["rnn"].training] == [16, 32]

    text = path.read_text()
    assert not re.search(r"\bnan\b|\binf\b", text)
    for plot in re.findall(r"\((placeto_\w+\.png)\)", text):
        assert 0 < (tmp_path / plot).stat().st_size < 100_000
    kept = json.loads((tmp_path / "placeto_records.json").read_text())
    assert len(kept["pieces"]) == 8


def test_a_folder_is_of_one_study(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no study"):
        Generalisation(out=tmp_path, write_only=True).write()
    (tmp_path / "settings.json").write_bytes(msgspec.json.encode(TINY))
    with pytest.raises(InputError, match="nothing is done yet of ptb"):
        Generalisation(families="ptb", out=tmp_path, write_only=True).write()
    with pytest.raises(InputError, match="of another size than this one"):
        Generalisation(families="ptb", out=tmp_path).write()
    with pytest.raises(InputError, match="unknown model family 'pbt'"):
        Generalisation(families="pbt", out=tmp_path).write()
    (tmp_path / "pieces").mkdir(exist_ok=True)
    (tmp_path / "pieces" / "ptb-random-0.json").write_text("{")
    with pytest.raises(InputError, match="delete it, and the study does it again"):
        Generalisation(families="ptb", out=tmp_path, write_only=True).write()


def test_a_document_is_written_of_whatever_is_done(tmp_path: Path) -> None:
    results = made_up()
    half = FamilyFindings(results.size, [each for each in results.results if each.kind in ("random", "placeto")])
    text = save(half, tmp_path, "python").read_text()
    assert "RNN, zero-shot | - |" in text
    assert np.isfinite(half.standing(("placeto", PLACETO), half.columns["ptb"]).value)
