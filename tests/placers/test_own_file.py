"""Placers, clusters and cost models from a user's own file, compared with those that come with placelab."""

import copy
from pathlib import Path

import pytest

from envs.costs.costs import load_cost_model
from evaluation.commands.load_placer import chosen_placers, load_placer
from evaluation.comparing.compare import compare
from graphs.files.load import load_cluster
from graphs.foundation import by_name
from graphs.foundation.errors import InputError, UserCodeError
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.learned.gdp.policy import OneShotPolicy
from tests.oracle.toys import random_graph, toy_cluster

SOURCE = '''
from __future__ import annotations

import numpy as np

from envs.costs.costs import Costs
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from graphs.cluster import Cluster, Device

CARD = Device("gpu", "gpu", 1e12, 1e11, 1e9)


class OnOne:
    """Everything on one device."""

    def __init__(self, device):
        self.device, self.name = device, "a name of its own"

    def place(self, problem, *, seed=0, budget=1):
        print("to the terminal, not among the results")
        return Plan.of_units(problem, [self.device] * problem.graph.num_units)


class Thorough(OnOne):
    """The same, and how it was found."""

    def place(self, problem, *, seed=0, budget=1):
        return PlacerResult(super().place(problem), "another name", 7, simulations=budget, notes=("a remark",))


class Fails:
    def place(self, problem, *, seed=0, budget=1):
        return 1 / 0


class Mistaken:
    def place(self, problem, *, seed=0, budget=1):
        return [0] * len(problem.graph)


class Seconds:
    def __init__(self, each):
        self.each = each

    def costs(self, problem):
        return Costs(np.full((len(problem.graph), len(problem.cluster)), self.each))


def build(device: int = 0, label="any"):
    return OnOne(device)


def cards(*, devices: int = 2, gbps: float = 10.0) -> SomethingThatIsNotImported:
    return Cluster.uniform("mine", CARD, devices, latency=1e-5, bandwidth=gbps * 1e9, shared_out=True)


def seconds(*, each: float = 1.0):
    return Seconds(each)


def needs(*, first: str, second: int):
    return OnOne(second)


def strange(*, sizes: list[int] = ()):
    return OnOne(0)
'''
PROBLEM = Problem(random_graph(20, 1), toy_cluster(2))


@pytest.fixture
def mine(tmp_path: Path) -> str:
    """The path of a user's file."""
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return str(path)


def test_a_placer_from_a_file_is_compared_under_its_spec(mine: str, capsys: pytest.CaptureFixture[str]) -> None:
    specs = [f"{mine}:build", f"{mine}:build:device=1,label=x"]
    chosen = chosen_placers([",".join([*specs, "heft"])], [])
    records = compare(chosen, [PROBLEM], budget=4, quiet=True).records
    assert [record.placer for record in records] == [*specs, "heft"]
    assert all(record.step_seconds > 0 for record in records)
    assert [load_placer(spec).place(PROBLEM).plan.placement.max() for spec in specs] == [0, 1]
    assert not capsys.readouterr().out


def test_a_placer_from_a_file_may_say_how_it_found_its_plan(mine: str) -> None:
    spec = f"{mine}:Thorough:device=1"
    result, plan_alone = (
        load_placer(each).place(PROBLEM, seed=3, budget=5) for each in (spec, f"{mine}:OnOne:device=1")
    )
    assert (result.placer, result.seed, result.simulations, result.notes) == (spec, 3, 5, ("a remark",))
    assert result.plan == plan_alone.plan
    assert (plan_alone.seed, plan_alone.simulations) == (3, 0)


def test_another_process_can_build_it_again(mine: str) -> None:
    placer: Placer = by_name.build("placers", f"{mine}:build:device=1")
    again = copy.copy(placer)  # as processes copy it
    assert again is not placer
    assert again.place(PROBLEM, seed=3) == placer.place(PROBLEM, seed=3)
    assert (again.name, again.place(PROBLEM, seed=3).seed) == (placer.name, 3)


def test_a_cluster_from_a_file_is_called_by_its_spec(mine: str) -> None:
    spec = f"{mine}:cards:devices=3,gbps=2.5"
    cluster = load_cluster(spec)
    assert (len(cluster), cluster.name, cluster.bandwidth[0, 1]) == (3, spec, 2.5e9)
    assert load_cluster(f"{mine}:cards").name == f"{mine}:cards"


def test_a_cost_model_from_a_file(mine: str) -> None:
    assert (load_cost_model(f"{mine}:seconds:each=2").costs(PROBLEM).op_seconds == 2).all()


@pytest.mark.parametrize(
    ("folder", "spec", "sentence"),
    [
        ("placers", "{}", "expected the name of a function after the file, as in"),
        ("placers", "{}:", "expected the name of a function after the file, as in"),
        ("placers", "{}:absent", "no callable 'absent' in it; there are: "),
        ("placers", "no_such.py:build", r"no_such\.py: no such Python file"),
        ("placers", "{}:build:devise=1", "unknown knob 'devise'; did you mean 'device'"),
        ("placers", "{}:build:device=one", "expected device to be of type int, got 'one'"),
        ("placers", "{}:build:", "expected knobs as key=value"),
        ("placers", "{}:needs", "needs its knob 'first'"),
        ("placers", "{}:needs:a", "needs its knob 'second'"),
        ("placers", "{}:strange:sizes=3", r"sizes cannot be given as text: its type is list\[int\]"),
        ("placers", "{}:seconds", "expected a placer, with a method `place`, got Seconds"),
        ("graphs.clusters", "{}:build", "expected a graphs.cluster.Cluster, got OnOne"),
        ("graphs.clusters", "{}:cards:gbps=nan", "expected gbps to be a finite number, got nan"),
        ("graphs.clusters", "{}:cards:devices=0", "has no devices"),
        ("graphs.clusters", "{}:cards:devices=9999", "at most 4096 can be simulated"),
        ("envs.costs.cost_models", "{}:build", "expected a cost model, with a method `costs`, got OnOne"),
        ("placers.learned.gdp.networks", "{}:build", "expected a torch module, got OnOne"),
    ],
)
def test_what_is_wrong_gets_one_sentence(mine: str, folder: str, spec: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        by_name.build(folder, spec.format(mine))
    assert "\n" not in str(caught.value)


def test_what_the_users_code_raises_is_told_with_its_line(mine: str) -> None:
    line = SOURCE.split("\n").index("        return 1 / 0") + 1
    with pytest.raises(UserCodeError, match=rf"mine\.py:{line}: ZeroDivisionError: division by zero"):
        load_placer(f"{mine}:Fails").place(PROBLEM)
    with pytest.raises(InputError, match=r"Mistaken': expected a placelab\.Plan or .* from `place`, got list"):
        load_placer(f"{mine}:Mistaken").place(PROBLEM)
    with pytest.raises(InputError, match=r"is placed on device 7; cluster .* has devices 0 to 1"):
        load_placer(f"{mine}:build:device=7").place(PROBLEM)


def test_a_network_from_a_file_rates_devices_that_there_are(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    line = "    return type('Flat', (torch.nn.Module,), {'forward': lambda self, batch: batch.pairs[..., AT]})()\n"
    file.write_text(f"import torch\ndef build():\n{line.replace('AT', '0')}def wrong():\n{line.replace('AT', ':3')}")
    smaller = Problem(PROBLEM.graph, load_cluster("p100:devices=2"))
    larger = Problem(PROBLEM.graph, load_cluster("p100:devices=4"))
    policy, wrong = (OneShotPolicy.new(f"{file}:{name}", 0) for name in ("build", "wrong"))
    batch = policy.stack([policy.view(each) for each in (smaller, larger)])
    assert policy.logits(batch).isfinite().sum(-1)[:, 0].tolist() == [2, 4]
    with pytest.raises(InputError, match=r"Flat returned .*; expected \(problems, units, devices\), here \(2, "):
        wrong.logits(batch)
