"""What training tells of its updates: numbers that follow from the samples, whatever the policy."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from graphs.problem import Problem
from placers.learned.settings import Ppo
from tests.oracle.toys import random_graph, toy_cluster
from tests.training.test_world_training import NETWORK
from training.learning.advantage import change
from training.learning.problem_report import ProblemReport, by_kind, mean_over_best, mean_over_bound
from training.recipe import Recipe
from training.runs.train import train


def test_the_divergence_is_that_of_two_known_distributions() -> None:
    old, new = torch.tensor([0.7, 0.3]), torch.tensor([0.6, 0.4])
    drawn = torch.multinomial(old, 200_000, replacement=True, generator=torch.Generator().manual_seed(0))
    log_ratio = (new / old).log()[drawn][None]
    kl, clipped = change(log_ratio, torch.ones_like(log_ratio, dtype=torch.bool), clip=0.2)
    assert kl == pytest.approx(float((old * (old / new).log()).sum()), rel=0.02)
    assert clipped == pytest.approx(0.3, abs=0.01), "only 0.4 / 0.3 is beyond 1.2"
    only_first = torch.zeros_like(log_ratio, dtype=torch.bool)
    only_first[0, 0] = True
    assert change(torch.zeros_like(log_ratio), only_first, clip=0.2) == (0.0, 0.0)


def report(kind: str, runtime: str, seconds: list[float], fits: list[bool]) -> ProblemReport:
    whole = ProblemReport.of(
        Problem(random_graph(6, seed=0), toy_cluster(2)), np.array(seconds), np.array(fits), bound=1.0, best=2.0,
        reward=-1.0,
    )  # fmt: skip
    return ProblemReport(kind, runtime, whole.over_bound, whole.over_best, whole.fitting, whole.reward)


def test_means_are_over_all_problems_and_over_those_of_each_kind() -> None:
    reports = [
        report("rnnlm", "run", [2.0, 8.0], [True, True]),
        report("bert", "run", [16.0, 1.0], [True, False]),
        report("bert", "ideal", [9.0, 9.0], [False, False]),
    ]
    assert mean_over_bound(reports) == pytest.approx(8.0)
    assert mean_over_best(reports) == pytest.approx(4.0)
    kinds = by_kind(reports)
    assert kinds["step_over_bound/rnnlm"] == pytest.approx(4.0)
    assert kinds["step_over_bound/bert"] == pytest.approx(16.0)
    assert (kinds["fitting/bert"], kinds["fitting/run"], kinds["fitting/ideal"]) == (0.25, 0.75, 0.0)
    assert "step_over_bound/ideal" not in kinds


def test_lines_hold_what_is_plotted(tmp_path: Path) -> None:
    recipe = Recipe(
        placer="sequential", network=NETWORK, ppo=Ppo(updates=2, samples=4, problems_per_update=2, clip=1e-9)
    )
    problems = [Problem(random_graph(ops, seed=ops), toy_cluster(2)) for ops in (6, 9)]
    train(recipe, problems, out=tmp_path, loggers=())
    for line in map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines()):
        assert line["decisions"] == 4 * sum(len(each.units) for each in problems)
        assert line["fps"] == pytest.approx(line["decisions"] / line["seconds"])
        assert line["step_over_best"] >= 1.0 - 1e-12
        assert line["step_over_bound"] >= line["step_over_best"] - 1e-12
        assert line["approx_kl"] > 0
        assert line["clip_fraction"] > 0.5, "whatever has changed at all is clipped"
        assert line["gradient_norm"] > 0
        assert np.isfinite(line["loss"])
        kind = problems[0].graph.name.partition(":")[0]
        assert line[f"fitting/{kind}"] == line["fitting"]
        assert line["fitting/ideal"] == line["fitting"]
