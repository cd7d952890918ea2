"""The cases: models small enough for two cores, and plans of all kinds, good ones and bad ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from envs.plans.plan import Plan
from graphs.foundation import by_name
from graphs.problem import Problem

MODELS = {
    "GPT": "transformer:layers=4,width=128,heads=4,sequence=64,batch=16,vocabulary=1000,tied=true",
    "BERT": "bert:layers=2,width=128,heads=4,sequence=32,batch=8",
    "ViT": "vit:layers=4,width=192,heads=4,image=64,batch=16",
    "Inception": "inception:blocks=4,width=32,image=64,batch=16",
    "WaveNet": "wavenet:stacks=1,layers=8,channels=64,length=1000,batch=8",
    "GNMT": "gnmt:layers=2,steps=4,hidden=256,batch=64,vocabulary=1000",
}
PLACERS = {  # what each plan is called, and the placer that makes it
    "single device": "single_device",
    "HEFT": "heft",
    "m-ETF": "m_etf",
    "METIS": "metis",
    "human expert": "human_expert",
    "round robin": "round_robin",
    "random": "random",
    "annealing": "annealing",
    "GPipe, 2 micro-batches": "gpipe:micro_batches=2",
    "GPipe, 4 micro-batches": "gpipe:micro_batches=4",
    "1F1B, 4 micro-batches": "gpipe:micro_batches=4,order=early_backward_a",
    "zero bubble, 4 micro-batches": "gpipe:micro_batches=4,order=zb_h1",
    "data parallelism": "data_parallel",
}
MOVED = (0.02, 0.1, 0.3)  # of the units of the placement by annealing, to another device each
BUDGET = 1000  # simulations of annealing


class Case(NamedTuple):
    """A plan of a model."""

    name: str
    plan: Plan


def cases(problem: Problem, seed: int = 0) -> Iterator[Case]:
    """Plans for a problem, each only once however many placers find it."""
    found = set[Plan]()
    for case in _all(problem, seed):
        if case.plan not in found:
            found.add(case.plan)
            yield case


def _all(problem: Problem, seed: int) -> Iterator[Case]:
    best = None
    for name, spec in PLACERS.items():
        result = by_name.build("placers", spec).place(problem, seed=seed, budget=BUDGET)
        if name == "annealing":
            best = result.plan
        yield Case(name, result.plan)
    assert best is not None
    placement, random = best.per_unit(problem), np.random.default_rng(seed)
    for share in MOVED:
        moved = random.random(len(placement)) < share
        other = (placement + random.integers(1, len(problem.cluster), len(placement))) % len(problem.cluster)
        yield Case(f"annealing, {share:.0%} moved", Plan.of_units(problem, np.where(moved, other, placement)))
