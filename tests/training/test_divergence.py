"""A training that diverges ends at that update with a sentence, and leaves nothing behind that is no number."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.learned.finite import NotFiniteError, check_outputs
from placers.learned.gdp.policy import OneShotPolicy
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.settings import Imitation, Ppo, Reinforce, Settings
from tests.oracle.toys import random_graph, toy_cluster, toy_graph
from training.learning.divergence import descend
from training.recipe import Recipe, load_recipe
from training.runs.finetune import FineTuner
from training.runs.run_folder import TRAINER
from training.runs.train import train

NETWORKS = {
    "gdp": "graphsage_transformer:width=16,sage_layers=1,transformer_layers=1,heads=2",
    "sequential": "sequential:width=16,sage_layers=1,heads=2,hidden=16",
    "colocrl": "colocrl:devices=2,hidden=8",
    "hdp": "hdp:devices=2,hidden=8,groups=4",
    "placeto": "placeto:width=8,rounds=2",
}
FAR = 1e20  # a rate that no recipe may have


def problems() -> list[Problem]:
    return [Problem(random_graph(ops, seed=ops), toy_cluster(2, memory=1e4)) for ops in (6, 12)]


def recipe(placer: str, rate: float = 1e-3, imitation: int = 0) -> Recipe:
    if placer == "placeto":
        reinforce = Reinforce(updates=9, learning_rate=rate, final_learning_rate=rate, problems_per_update=2)
        return Recipe(placer=placer, network=NETWORKS[placer], reinforce=reinforce)
    ppo = Ppo(updates=9, learning_rate=rate, final_learning_rate=rate, samples=4)
    shown = Imitation(simulations=5, updates=imitation, weight=0.1) if imitation else Imitation()
    return Recipe(placer=placer, network=NETWORKS[placer], ppo=ppo, imitation=shown)


def no_constant(text: str) -> float:
    raise AssertionError(f"{text} is no JSON")


@pytest.mark.parametrize("placer", NETWORKS)
def test_a_run_stops_where_it_diverges_and_keeps_its_last_checkpoint(placer: str, tmp_path: Path) -> None:
    sentence = r"training diverged at update \d+: the .* are not finite numbers; take a lower learning rate .*1e\+20"
    with pytest.raises(InputError, match=sentence):
        train(recipe(placer, FAR), problems(), out=tmp_path, seed=1)
    assert not (tmp_path / "policy.safetensors").exists()
    saved = load_file(tmp_path / TRAINER)
    assert all(torch.isfinite(value).all() for key, value in saved.items() if key.startswith("policy."))
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert all(json.loads(line, parse_constant=no_constant)["update"] for line in lines)


def test_imitation_stops_too(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"imitation diverged at update \d+"):
        train(recipe("gdp", FAR, imitation=9), problems(), out=tmp_path)


def test_and_fine_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    far = Settings(ppo=Ppo(updates=9, problems_per_update=1, samples=16, learning_rate=FAR, final_learning_rate=FAR))
    monkeypatch.setattr(OneShotPolicy, "fine_tuning", lambda *_: far)
    with pytest.raises(InputError, match=r"training diverged at update \d+"):
        FineTuner(LearnedPlacer(OneShotPolicy.new(NETWORKS["gdp"], 0), "gdp")).place(problems()[0], budget=200)


@pytest.mark.parametrize("broken", ["loss", "weights"])
def test_a_loss_or_weights_that_are_no_numbers_are_noticed_at_once(broken: str) -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], 1e38 if broken == "weights" else 0.1)
    loss = weight.sum() * 100 if broken == "weights" else weight.sum() * torch.nan
    loss.backward()  # type: ignore[no-untyped-call]
    with pytest.raises(NotFiniteError, match="weights are not" if broken == "weights" else "gradients are not"):
        descend(optimizer, 1e3)


def test_outputs_may_forbid_a_device_and_nothing_else() -> None:
    check_outputs(torch.tensor([0.0, -torch.inf, 1.0]))
    for wrong in (torch.nan, torch.inf):
        with pytest.raises(NotFiniteError, match="outputs are not finite"):
            check_outputs(torch.tensor([0.0, -torch.inf, wrong]))


@pytest.mark.parametrize("rate", ["inf", "1e30", "nan", "-1.0", "0.0", "1.5"])
@pytest.mark.parametrize("section", ["ppo", "reinforce"])
def test_rates_that_no_sane_run_could_have_are_refused(rate: str, section: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    placer = 'placer = "placeto"\n' if section == "reinforce" else ""
    path.write_text(f"{placer}[{section}]\nlearning_rate = {rate}\n")
    with pytest.raises(InputError, match=f"{section}.learning_rate"):
        load_recipe(str(path))


@pytest.mark.parametrize("text", ["[ppo]\nentropy = inf", "[ppo]\nweight_decay = nan", "[problems]\nspread = inf"])
def test_other_numbers_must_be_finite_too(text: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"entropy|weight_decay|spread"):
        load_recipe(str(path))


@pytest.mark.parametrize("placer", ["gdp", "placeto"])
def test_an_update_in_which_nothing_fits_is_null_in_the_metrics(placer: str, tmp_path: Path) -> None:
    graph = toy_graph([1, 1], [(0, 1)], weights=[999], weight_uses=[(0, 0)])
    train(recipe(placer), [Problem(graph, toy_cluster(2))], out=tmp_path)
    text = (tmp_path / "metrics.jsonl").read_text()
    lines = [json.loads(line, parse_constant=no_constant) for line in text.splitlines()]
    assert [line["step_over_bound"] for line in lines] == [None] * 9
    assert [line["fitting"] for line in lines] == [0.0] * 9
