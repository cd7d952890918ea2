"""The second policy that comes with placelab is a placer by name, with its weights, and says which."""

import hashlib
import json
from pathlib import Path

import pytest

from evaluation.commands.load_placer import load_placer
from evaluation.provenance import policy_sha256
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers import general
from placers.learned.lookup import placer_of
from tests.oracle.toys import random_graph, toy_cluster

PROBLEM = Problem(random_graph(20, seed=1), toy_cluster(3, memory=1e9))


def test_it_is_the_policy_in_its_folder_under_its_own_name() -> None:
    ours, same = load_placer("general"), placer_of(general.FOLDER)
    assert [load_placer(spec).name for spec in ("general", "general:samples=4")] == ["general", "general:samples=4"]
    for budget in (0, 5):
        plan = ours.place(PROBLEM, seed=2, budget=budget).plan
        assert plan.devices == same.place(PROBLEM, seed=2, budget=budget).plan.devices


def test_records_name_its_weights_and_its_card_their_training() -> None:
    weights = (general.FOLDER / "policy.safetensors").read_bytes()
    assert policy_sha256(load_placer("general")) == hashlib.sha256(weights).hexdigest()
    meta, card = json.loads((general.FOLDER / "meta.json").read_text()), (general.FOLDER / "card.md").read_text()
    assert f"seed {meta['seed']}" in card
    assert f"{meta['simulations']:,} simulations" in card
    assert hashlib.sha256(weights).hexdigest() in card, "so that who has the file can tell that it is this one"


def test_without_its_folder_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(general, "FOLDER", tmp_path / "none")
    with pytest.raises(InputError, match=r"is missing from .*none; `placelab train policy2 --out .*none` makes"):
        load_placer("general")
