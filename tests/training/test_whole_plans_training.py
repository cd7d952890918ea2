"""Training a policy of whole plans: labels, imitation, REINFORCE; a run that is stopped and resumed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphs.foundation.errors import InputError
from placers.learned.whole_plans.chain_view import MICRO_BATCHES, PASS_ORDERS, ChainView
from training.checkpoint import read_state
from training.whole_plans.labels import Label, best_known, is_possible, named_alike, read_labels
from training.whole_plans.random_chains import KINDS, random_chain
from training.whole_plans.run import train_whole_plans
from training.whole_plans.settings import WholePlans
from training.whole_plans.trainer import WholePlansTrainer

SMALL = WholePlans(
    network="whole_plans:hidden=4", problems=4, simulations=2, imitation=3, updates=2, drawn=2, samples=2, batch=8,
    every=2, held_out=("mixed", "pyramid"),
)  # fmt: skip


def test_the_best_known_pipeline_can_be_made_and_is_no_slower_than_one_device() -> None:
    view = ChainView.of(random_chain(np.random.default_rng(5), "recurrent"))
    pipeline, seconds = best_known(view, 6, seed=0)
    assert pipeline is not None
    assert is_possible(view, pipeline)
    assert named_alike(view, pipeline) == pipeline
    assert pipeline.micro_batches in MICRO_BATCHES
    assert pipeline.order in PASS_ORDERS
    assert seconds == view.pipelines.outcome(pipeline).step_seconds or len(pipeline.stages) == 1
    longer = best_known(view, 12, seed=0, starts=[pipeline])[1]
    assert longer <= seconds * (1 + 1e-9)


def test_a_run_that_is_stopped_ends_as_if_it_had_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = tmp_path / "labels.jsonl"
    whole = train_whole_plans(SMALL, out=tmp_path / "whole", seed=1, labels=labels)
    assert len(read_labels(labels, SMALL.simulations)) == SMALL.problems

    original = WholePlansTrainer.update

    def refused(self: Any) -> Any:
        if self.updates == 1:
            raise RuntimeError("killed")
        return original(self)

    monkeypatch.setattr(WholePlansTrainer, "update", refused)
    with pytest.raises(RuntimeError, match="killed"):
        train_whole_plans(SMALL, out=tmp_path / "stopped", seed=1, labels=labels)
    monkeypatch.undo()
    resumed = train_whole_plans(SMALL, out=tmp_path / "stopped", seed=1, labels=labels, resume=True)
    for one, other in zip(whole.policy.parameters(), resumed.policy.parameters(), strict=True):
        assert torch.equal(one, other)
    assert (tmp_path / "whole" / "metrics.jsonl").read_text() == (tmp_path / "stopped" / "metrics.jsonl").read_text()
    states = [read_state(tmp_path / name) for name in ("whole", "stopped")]
    assert states[0][1] == states[1][1]
    assert all(torch.equal(states[0][0][key], value) for key, value in states[1][0].items())

    with pytest.raises(InputError, match="holds a run already"):
        train_whole_plans(SMALL, out=tmp_path / "whole", seed=1, labels=labels)
    with pytest.raises(InputError, match="started with other settings"):
        train_whole_plans(WholePlans(problems=4), out=tmp_path / "whole", seed=1, labels=labels, resume=True)
    with pytest.raises(InputError, match="written with seed 1, this run has seed 2"):
        train_whole_plans(SMALL, out=tmp_path / "whole", seed=2, labels=labels, resume=True)


def test_labels_by_two_workers_are_those_of_one(tmp_path: Path) -> None:
    for workers in (1, 2):
        train_whole_plans(SMALL, out=tmp_path / str(workers), seed=1, workers=workers)
    found = [read_labels(tmp_path / each / "labels.jsonl", SMALL.simulations) for each in ("1", "2")]
    assert found[0] == found[1]
    assert len(found[0]) == SMALL.problems
    states = [read_state(tmp_path / each)[0] for each in ("1", "2")]
    assert all(torch.equal(states[0][key], value) for key, value in states[1].items())


def test_a_label_that_was_written_in_part_is_searched_again_and_what_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text('{"number":0,"simulations":2,"seconds":1.0,"actions":[1,2]}\n{"number":1,"simul')
    assert read_labels(path, 2) == {0: Label(0, 2, 1.0, (1, 2))}
    assert read_labels(path, 3) == {}
    assert path.read_text().endswith("]}\n")
    path.write_text("something\n")
    with pytest.raises(InputError, match="is no file of labels"):
        read_labels(path, 2)


def test_settings_that_leave_nothing_to_train_or_to_validate_on_are_refused() -> None:
    with pytest.raises(InputError, match="unknown kind of chain 'blokcs'"):
        WholePlans(held_out=("blokcs",))
    with pytest.raises(InputError, match="held_out is empty"):
        WholePlans(held_out=())
    with pytest.raises(InputError, match="all kinds of chains are held out"):
        WholePlans(held_out=tuple(KINDS))
