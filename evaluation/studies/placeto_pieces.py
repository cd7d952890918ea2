"""The pieces of the Placeto study: what is trained, placed and learned from scratch, for one family and one seed.

A piece that is done is a JSON file in the study's folder, and is not done again; a training that was stopped goes on.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from msgspec.structs import replace as changed
from tqdm import tqdm

from evaluation.compare import compare
from evaluation.record import Record
from evaluation.studies.captures import tied
from evaluation.studies.pieces import do_pieces, load_pieces, trained
from graphs.foundation.errors import InputError
from graphs.load import load_cluster, split
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.learned.colocrl.policy import new_colocrl
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.placeto.policy import new_placeto
from training.finetune import FineTuner
from training.recipe import ProblemSet, Recipe, load_recipe

Kind = Literal["reference", "rivals", "random", "placeto", "ppo", "terminal", "rnn", "scratch"]
OF_A_SEED: tuple[Kind, ...] = ("rivals", "random", "placeto", "ppo", "terminal", "rnn", "scratch")
PLACETO, PPO, RNN = "placeto", "ppo", "rnn"  # the placers' names in records; fine-tuned ones end with "+finetuned"
SEARCH = "annealing"
RIVALS = ("single_device", "human_expert", "metis", SEARCH)


@dataclass(frozen=True)
class Settings:
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


class Piece(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one piece of work gave."""

    family: str
    kind: Kind
    seed: int
    seconds: float  # wall clock
    records: tuple[Record, ...] = ()
    training: tuple[Point, ...] = ()  # if something was trained


def piece_name(family: str, kind: Kind, seed: int) -> str:
    """The name of a piece's file."""
    return f"{family}-{kind}-{seed}.json"


def do_all(out: Path, settings: Settings, families: Sequence[str], seeds: int) -> None:
    """Do the pieces that are not done yet. Raises InputError if the folder is of a study of another size."""
    works: list[tuple[str, Kind, int]] = []
    for family in families:
        works += [(family, "reference", 0), *((family, kind, seed) for seed in range(seeds) for kind in OF_A_SEED)]
    do_pieces(
        out, settings,
        {piece_name(*work): partial(Workshop(out, settings, work[0], work[2]).do, work[1]) for work in works},
    )  # fmt: skip


def load_all(out: Path) -> tuple[Settings, list[Piece]]:
    """What the study has done so far. Raises InputError for a folder without one, or a damaged piece."""
    return load_pieces(out, Settings, Piece)


@dataclass(frozen=True)
class Workshop:
    """Does the pieces of one family and seed."""

    out: Path
    settings: Settings
    family: str
    seed: int

    def do(self, kind: Kind) -> Piece:
        """One piece of work."""
        started = time.perf_counter()
        records, training = _WORK[kind](self)
        seconds = time.perf_counter() - started
        return Piece(family=self.family, kind=kind, seed=self.seed, seconds=seconds, records=records, training=training)

    def reference(self) -> Given:
        """What a long search finds."""
        return self._placed([SEARCH], self._tests(), {SEARCH: self.settings.reference_simulations}), ()

    def rivals(self) -> Given:
        """What classical placers reach with as many simulations as fine-tuning."""
        return self._placed(list(RIVALS), self._tests(), dict.fromkeys(RIVALS, self.settings.simulations)), ()

    def random(self) -> Given:
        """One random placement of each test graph."""
        return self._placed(["random"], self._tests(), {"random": 1}), ()

    def placeto(self) -> Given:
        """Placeto trained on the family, with the paper's reward of improvements; zero-shot, then fine-tuned."""
        placer, training = self._trained(self._placeto_recipe(), PLACETO)
        return self._judged(replace(placer, name=PLACETO, samples=1)), training

    def ppo(self) -> Given:
        """Placeto trained by PPO, which averages where the published one adds up, and serves any number of devices."""
        placer, training = self._trained(self._ppo_recipe(), PPO)
        return self._judged(replace(placer, name=PPO, samples=1)), training

    def terminal(self) -> Given:
        """The same training with all reward at the end of an episode; zero-shot."""
        given = self._placeto_recipe()
        recipe = changed(given, rules=changed(given.rules, reward="terminal"))
        placer, training = self._trained(recipe, "terminal")
        zero_shot = replace(placer, name="terminal", samples=1)
        return self._placed([zero_shot], self._tests(), {}), training

    def rnn(self) -> Given:
        """ColocRL's RNN trained on the family; zero-shot, then fine-tuned."""
        placer, training = self._trained(self._rnn_recipe(), RNN)
        return self._judged(replace(placer, name=RNN, samples=1)), training

    def scratch(self) -> Given:
        """Both learn on a test graph, without any training before."""
        problems = self._tests()[: self.settings.scratch_graphs]
        untrained = (
            LearnedPlacer(new_placeto(self._placeto_recipe().network, self.seed), PLACETO),
            LearnedPlacer(new_colocrl(self._rnn_recipe().network, self.seed), RNN),
        )
        tuners = [FineTuner(placer) for placer in untrained]
        budgets = dict.fromkeys((tuner.name for tuner in tuners), self.settings.scratch_simulations)
        return self._placed(tuners, problems, budgets), ()

    def _judged(self, placer: LearnedPlacer) -> tuple[Record, ...]:
        """A trained placer on the test graphs, zero-shot and fine-tuned."""
        tuner = FineTuner(replace(placer, samples=0))
        return self._placed([placer, tuner], self._tests(), {tuner.name: self.settings.simulations})

    def _placed(
        self, placers: Sequence[Placer | str], problems: Sequence[Problem], budgets: dict[str, int]
    ) -> tuple[Record, ...]:
        """Records of placers, which have one simulation unless told otherwise."""
        done = compare(placers, problems, budget=budgets, seeds=(self.seed,), quiet=True)
        if done.failures:
            raise InputError(f"{done.failures[0].placer} on {done.failures[0].problem}: {done.failures[0].reason}")
        return done.records

    def _trained(self, recipe: Recipe, name: str) -> tuple[LearnedPlacer, tuple[Point, ...]]:
        """The placer that a recipe gives on the training graphs, and how the training went."""
        folder = self.out / "runs" / f"{self.family}-{name}-{self.seed}"
        placer = trained(recipe, self._training(), folder, self.seed)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        ppo, reinforce = recipe.ppo, recipe.reinforce
        chosen, drawn = ppo.problems_per_update, ppo.samples
        if recipe.placer == PLACETO:
            chosen, drawn = reinforce.problems_per_update, reinforce.episodes
        each = min(chosen, self.settings.train_graphs) * drawn
        return placer, tuple(_points(lines, each))

    def _placeto_recipe(self) -> Recipe:
        network = f"placeto:devices={len(load_cluster(self.settings.cluster))}"
        return self._sized("placeto", network, self.settings.updates)

    def _ppo_recipe(self) -> Recipe:
        return self._sized("placeto_clipped", load_recipe("placeto_clipped").network, self.settings.ppo_updates)

    def _sized(self, recipe: str, network: str, updates: int) -> Recipe:
        given = load_recipe(recipe)
        reinforce = changed(given.reinforce, updates=updates)
        return changed(given, network=network, problems=self._problem_set(), reinforce=reinforce)

    def _rnn_recipe(self) -> Recipe:
        given, rate = load_recipe("colocrl"), self.settings.rnn_learning_rate
        network = f"colocrl:devices={len(load_cluster(self.settings.cluster))},hidden={self.settings.rnn_hidden}"
        ppo = changed(given.ppo, updates=self.settings.rnn_updates, learning_rate=rate, final_learning_rate=rate)
        return changed(given, network=network, problems=self._problem_set(), ppo=ppo)

    def _problem_set(self) -> ProblemSet:
        """Where the training graphs are from, for the run's folder: they are given to it, and are not all of these."""
        size = self.settings
        clusters, groups = (size.cluster,), size.groups
        return ProblemSet(
            families=(self.family,), clusters=clusters, test_clusters=clusters, groups=(groups,), test_groups=groups
        )

    def _training(self) -> tuple[Problem, ...]:
        return _problems(self.family, "train", self.settings.train_graphs, self.settings.groups, self.settings.cluster)

    def _tests(self) -> tuple[Problem, ...]:
        return _problems(self.family, "test", self.settings.test_graphs, self.settings.groups, self.settings.cluster)


Given = tuple[tuple[Record, ...], tuple[Point, ...]]
_WORK: dict[Kind, Callable[[Workshop], Given]] = {
    "reference": Workshop.reference,
    "rivals": Workshop.rivals,
    "random": Workshop.random,
    "placeto": Workshop.placeto,
    "ppo": Workshop.ppo,
    "terminal": Workshop.terminal,
    "rnn": Workshop.rnn,
    "scratch": Workshop.scratch,
}


def spread(specs: Sequence[str], count: int) -> list[str]:
    """So many of the specs, evenly spread over the list."""
    return [specs[i] for i in np.unique(np.linspace(0, len(specs) - 1, count).round().astype(int))]


def _points(lines: Sequence[dict[str, float | None]], episodes_each: int) -> Iterator[Point]:
    for count, line in enumerate(lines, start=1):
        over_bound = line["step_over_bound"]  # null where nothing fits; NaN in older runs
        there = over_bound is not None and not math.isnan(over_bound)
        yield Point(count * episodes_each, int(line["simulations"] or 0), over_bound if there else None)


@cache
def _problems(
    family: str, which: Literal["train", "test"], count: int, groups: int, cluster: str
) -> tuple[Problem, ...]:
    """Some graphs of a split, captured once, on a cluster."""
    specs = tqdm(spread(split([family], which), count), desc=f"capturing {family}", leave=False, disable=None)
    return tuple(Problem(tied(spec, groups), load_cluster(cluster)) for spec in specs)
