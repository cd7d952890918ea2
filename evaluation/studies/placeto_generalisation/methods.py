"""The work of the Placeto study: what is trained, placed and learned from scratch, for one family and one seed.

All of it first come, first served, as in Placeto's simulator.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec.structs import replace as changed

from evaluation.records.record import Record
from evaluation.studies.comparisons import placed, trained
from evaluation.studies.pieces import PIECES, SavedJob
from evaluation.studies.problems import captured_problems
from graphs.files.load import load_cluster
from graphs.files.splits import split
from graphs.problem import FIFO, Problem
from placers.learned.colocrl.policy import ColocRlPolicy
from placers.learned.learned_placer import LearnedPlacer, PolicyPlacer
from placers.learned.placeto.policy import PlacetoPolicy
from training.recipe import ProblemSet, Recipe, load_recipe
from training.runs.finetune import FineTuner

Kind = Literal["reference", "rivals", "random", "placeto", "ppo", "terminal", "rnn", "scratch"]
OF_A_SEED: tuple[Kind, ...] = ("rivals", "random", "placeto", "ppo", "terminal", "rnn", "scratch")
PLACETO, PPO, RNN = "placeto", "ppo", "rnn"  # the placers' names in records; fine-tuned ones end with "+finetuned"
SEARCH = "annealing"
CLASSICAL = ("single_device", "human_expert", "metis", SEARCH)


@dataclass(frozen=True)
class PlacetoSize:
    """The size of the study."""

    cluster: str = "p2_8xlarge:links=placeto,devices=2"
    """Where all graphs are placed."""
    groups: int = 32
    """Op groups of each graph; Placeto's are 128, and 160 of nmt."""
    train_graphs: int = 8
    """Of each family, spread over its training split; Placeto's are 16 or more."""
    test_graphs: int = 6
    """Of each family, spread over its test split."""
    updates: int = 250
    """Of Placeto's training, an episode on each of 4 graphs in each."""
    ppo_updates: int = 300
    """Of its training by PPO, 8 episodes on each of 4 graphs in each."""
    rnn_updates: int = 250
    """Of the RNN's training, 8 placements of each of 4 graphs in each."""
    rnn_hidden: int = 64
    """Width of the RNN's LSTMs."""
    rnn_learning_rate: float = 3e-4
    """Of the RNN's training; its recipe's is a third, for five times as many updates."""
    simulations: int = 500
    """For fine-tuning on a test graph."""
    scratch_graphs: int = 2
    """Test graphs of each family on which both learn from scratch."""
    scratch_simulations: int = 1000
    """For that."""
    reference_simulations: int = 5000
    """Of annealing, once for each test graph, for the sake of a best known placement."""


class Point(msgspec.Struct, frozen=True, array_like=True):
    """One update of a training."""

    episodes: int  # so far; of the RNN, placements drawn
    simulations: int  # so far
    over_bound: float | None  # geometric mean of the final placements' step times over the lower bound; None: none fits


class FamilyResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one kind of work gave for a family and a seed."""

    family: str
    kind: Kind
    seed: int
    seconds: float  # wall clock
    records: tuple[Record, ...] = ()
    training: tuple[Point, ...] = ()  # if something was trained


def pieces(out: Path, size: PlacetoSize, families: Sequence[str], seeds: int) -> list[SavedJob]:
    """The work of a study, family by family and seed by seed."""
    works: list[tuple[str, Kind, int]] = []
    for family in families:
        works += [(family, "reference", 0), *((family, kind, seed) for seed in range(seeds) for kind in OF_A_SEED)]
    return [
        SavedJob(out / PIECES / f"{family}-{kind}-{seed}.json", partial(tried, family, kind, seed, out, size))
        for family, kind, seed in works
    ]


def tried(family: str, kind: Kind, seed: int, out: Path, size: PlacetoSize) -> FamilyResult:
    """One kind of work; a training that was stopped resumes."""
    started = time.perf_counter()
    tests = problems_of(family, "test", size)
    training: tuple[Point, ...] = ()
    if kind in RECIPES:
        recipe, folder = RECIPES[kind](size, family), out / "runs" / f"{family}-{kind}-{seed}"
        placer = trained(recipe, problems_of(family, "train", size), folder, seed)
        training = _points(folder, recipe, size)
        records = _judged(kind, placer, tests, size, seed)
    elif kind == "scratch":
        records = _from_scratch(family, tests[: size.scratch_graphs], size, seed)
    else:
        budgets = {
            "reference": {SEARCH: size.reference_simulations},  # a long search
            "rivals": dict.fromkeys(CLASSICAL, size.simulations),  # as many simulations as fine-tuning
            "random": {"random": 1},
        }[kind]
        records = placed(list(budgets), tests, budgets, seed)
    seconds = time.perf_counter() - started
    return FamilyResult(family=family, kind=kind, seed=seed, seconds=seconds, records=records, training=training)


def _judged(
    kind: Kind, placer: PolicyPlacer[Any], tests: Sequence[Problem], size: PlacetoSize, seed: int
) -> tuple[Record, ...]:
    """A trained placer on the test graphs, zero-shot and, but for that with terminal rewards, fine-tuned."""
    zero_shot = replace(placer, name=kind, samples=1)
    tuner = FineTuner(replace(zero_shot, samples=0))
    if kind == "terminal":
        return placed([zero_shot], tests, {}, seed)
    return placed([zero_shot, tuner], tests, {tuner.name: size.simulations}, seed)


def _from_scratch(family: str, tests: Sequence[Problem], size: PlacetoSize, seed: int) -> tuple[Record, ...]:
    """Placeto and the RNN learn on a test graph, without any training before."""
    tuners = [
        FineTuner(LearnedPlacer(PlacetoPolicy.new(_published(size, family).network, seed), PLACETO)),
        FineTuner(LearnedPlacer(ColocRlPolicy.new(_rnn(size, family).network, seed), RNN)),
    ]
    return placed(tuners, tests, {tuner.name: size.scratch_simulations for tuner in tuners}, seed)


def _published(size: PlacetoSize, family: str) -> Recipe:
    """Placeto with the paper's reward of improvements."""
    given, network = load_recipe("placeto"), f"placeto:devices={len(load_cluster(size.cluster))}"
    reinforce = changed(given.reinforce, updates=size.updates)
    return changed(given, network=network, problems=_problem_set(size, family), reinforce=reinforce)


def _terminal(size: PlacetoSize, family: str) -> Recipe:
    """The same with all reward at the end of an episode."""
    recipe = _published(size, family)
    return changed(recipe, rules=changed(recipe.rules, reward="terminal"))


def _ppo(size: PlacetoSize, family: str) -> Recipe:
    """Placeto trained by PPO, which averages where the published one adds up, and serves any number of devices."""
    given = load_recipe("placeto_clipped")
    reinforce = changed(given.reinforce, updates=size.ppo_updates)
    return changed(given, problems=_problem_set(size, family), reinforce=reinforce)


def _rnn(size: PlacetoSize, family: str) -> Recipe:
    """ColocRL's RNN."""
    given, rate = load_recipe("colocrl"), size.rnn_learning_rate
    network = f"colocrl:devices={len(load_cluster(size.cluster))},hidden={size.rnn_hidden}"
    ppo = changed(given.ppo, updates=size.rnn_updates, learning_rate=rate, final_learning_rate=rate)
    return changed(given, network=network, problems=_problem_set(size, family), ppo=ppo)


RECIPES: dict[Kind, Callable[[PlacetoSize, str], Recipe]] = {
    "placeto": _published, "ppo": _ppo, "terminal": _terminal, "rnn": _rnn,
}  # fmt: skip


def _problem_set(size: PlacetoSize, family: str) -> ProblemSet:
    """The training graphs' family, for the run's folder: the run is given some of its graphs."""
    clusters, groups = (size.cluster,), size.groups
    return ProblemSet(
        families=(family,),
        clusters=clusters,
        test_clusters=clusters,
        groups=(groups,),
        test_groups=groups,
        order=FIFO,
    )


def _points(folder: Path, recipe: Recipe, size: PlacetoSize) -> tuple[Point, ...]:
    """How a training went."""
    chosen, drawn = recipe.ppo.problems_per_update, recipe.ppo.samples
    if recipe.placer == PLACETO:
        chosen, drawn = recipe.reinforce.problems_per_update, recipe.reinforce.episodes
    episodes = min(chosen, size.train_graphs) * drawn
    points = []
    for count, line in enumerate((folder / "metrics.jsonl").read_text().splitlines(), start=1):
        metrics = json.loads(line)
        over_bound = metrics["step_over_bound"]  # null where nothing fits; NaN in older runs
        there = over_bound is not None and not math.isnan(over_bound)
        points.append(Point(count * episodes, int(metrics["simulations"] or 0), over_bound if there else None))
    return tuple(points)


def spread(specs: Sequence[str], count: int) -> list[str]:
    """`count` of the specs, evenly spread over the list."""
    return [specs[i] for i in np.unique(np.linspace(0, len(specs) - 1, count).round().astype(int))]


@cache
def problems_of(family: str, which: Literal["train", "test"], size: PlacetoSize) -> tuple[Problem, ...]:
    """Some graphs of a split on the cluster; the same objects in every call."""
    specs = spread(split([family], which), size.train_graphs if which == "train" else size.test_graphs)
    return tuple(captured_problems(specs, [size.cluster], size.groups, f"capturing {family}", FIFO))
