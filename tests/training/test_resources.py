"""What a training is computed with: any number of workers give the same run; what is not there is one sentence."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from envs.prepared_problem import PreparedProblem
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.items import ThisProcess
from graphs.problem import Problem
from placers.learned.settings import Imitation, Ppo
from tests.forked import forked_items
from tests.oracle.toys import random_graph, toy_cluster
from tests.placers.bold import bold
from tests.training.metrics_lines import metrics_lines
from training.learning.labels.improvement import LabelSearch, improve_labels
from training.learning.rollouts import PpoProblem
from training.problems.random.settings import World
from training.recipe import ProblemSet, Recipe, Validation, load_recipe
from training.runs.resources import Resources, Sending
from training.runs.train import train

NETWORK = "sequential:width=16,heads=2,hidden=16,sage_layers=1,transformer_layers=1"
WORLD = World(problems=6, units=(8, 12), devices=(2, 3), held_out=("fan", "tiles"))
LABELLED = Recipe(
    placer="sequential",
    network=NETWORK,
    problems=ProblemSet(world=WORLD),
    validation=Validation(every=2, problems=3, averaging=0.5),
    ppo=Ppo(updates=2, problems_per_update=3, samples=4, reward="log"),
    imitation=Imitation(simulations=40, updates=2, weight=0.1, again=1),
)
ON_CARDS = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA card")


@pytest.mark.parametrize(
    "worth", [1.2e-4, pytest.param(0.0, marks=pytest.mark.slow)], ids=["some are sent", "all are sent"]
)
def test_a_labelled_training_is_the_same_bytes_on_two_workers(
    worth: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.runs.resources.WORTH_SENDING", worth)
    with forked_items():
        for workers in (1, 2):
            train(LABELLED, out=tmp_path / str(workers), seed=1, resources=Resources(workers))
    for file in ("trainer.safetensors", "policy.safetensors", "validation.jsonl"):
        assert (tmp_path / "2" / file).read_bytes() == (tmp_path / "1" / file).read_bytes()
    assert metrics_lines(tmp_path / "2") == metrics_lines(tmp_path / "1")


class Elsewhere:
    """An engine that notes what it is given."""

    def __init__(self) -> None:
        self.given: list[object] = []

    def results(self, do: Any, items: Any) -> Any:
        self.given += items
        yield from ThisProcess().results(do, items)


def test_what_takes_less_than_sending_it_is_done_here() -> None:
    policy = bold()
    small, large = (Problem(random_graph(ops, seed=1), toy_cluster(3, memory=1e9)) for ops in (6, 400))
    elsewhere = Elsewhere()
    problems = [PpoProblem(PreparedProblem(each), policy.view) for each in (small, large)]
    improve_labels(policy, problems, Imitation(simulations=2000, again=1), 0, Sending(elsewhere))
    assert [each.problem for each in elsewhere.given if isinstance(each, LabelSearch)] == [large]
    assert all(each.prepared.incumbent.placement is not None for each in problems)


def test_workers_that_are_not_there_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"no dask scheduler answers at 'tcp://127.0.0.1:1'; start one with"):
        train(LABELLED, out=tmp_path / "run", resources=Resources("tcp://127.0.0.1:1"))
    monkeypatch.setattr("graphs.foundation.extras.find_spec", lambda name: None)
    with pytest.raises(InputError, match="more than one worker needs the package distributed: pip install"):
        train(LABELLED, out=tmp_path / "run", loggers=(), resources=Resources(2))
    assert not (tmp_path / "run").exists()


def test_what_learns_from_episodes_has_no_other_workers(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="placer 'placeto' learns in one process; leave out other workers"):
        train(load_recipe("placeto"), out=tmp_path / "run", resources=Resources(2))


@pytest.mark.parametrize(
    ("device", "cards", "message"),
    [
        ("gpu", 0, "unknown device 'gpu'; expected cpu, cuda, or a card by its number, cuda:1"),
        ("meta", 0, "unknown device 'meta'; expected cpu, cuda, or a card"),
        ("cuda", 0, "device is 'cuda', and PyTorch sees no CUDA card here; leave it out for the CPU"),
        ("cuda:2", 2, "device is 'cuda:2', and PyTorch sees 2 CUDA cards here"),
    ],
)
def test_a_device_that_is_not_there_is_one_sentence(
    device: str, cards: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: cards > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: cards)
    with pytest.raises(InputError, match=message):
        train(LABELLED, out=tmp_path / "run", resources=Resources(device=device))
    assert not (tmp_path / "run").exists()


def test_ranks_of_a_machine_have_cards_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for rank, card in (("0", 0), ("1", 1), ("2", 0)):
        monkeypatch.setenv("LOCAL_RANK", rank)
        assert Resources(device="cuda").torch_device == torch.device("cuda", card)
        assert Resources(device="cuda:1").torch_device == torch.device("cuda", 1)


def test_a_policy_without_such_an_encoder_stays_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = by_name.module("placers", "gdp").new_policy("graphsage_transformer", 0)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    Resources().place_encoder(policy)
    with pytest.raises(InputError, match="of this placer's policy nothing is computed on a card; leave it out"):
        Resources(device="cuda").place_encoder(policy)


@ON_CARDS
def test_a_card_trains_the_policy_of_a_processor_and_goes_on_with_its_run(tmp_path: Path) -> None:
    problems = [Problem(random_graph(ops, seed=ops), toy_cluster(2, memory=1e4)) for ops in (6, 9, 12)]
    recipe = Recipe(placer="sequential", network=NETWORK, ppo=Ppo(updates=2, samples=4, problems_per_update=3))
    for device in ("cpu", "cuda"):
        train(recipe, problems, out=tmp_path / device, resources=Resources(device=device))
        train(recipe, problems, out=tmp_path / device, resume=True, resources=Resources(device=device))
    lines = [metrics_lines(tmp_path / of)[0] for of in ("cpu", "cuda")]
    assert lines[1] == pytest.approx(lines[0], rel=1e-3)
    kept = [load_file(tmp_path / of / "policy.safetensors") for of in ("cpu", "cuda")]
    assert {name: value.shape for name, value in kept[0].items()} == {n: v.shape for n, v in kept[1].items()}
