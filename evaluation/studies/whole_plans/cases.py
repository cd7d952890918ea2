"""The cases: random chains of a kind held out, and captured models on named clusters; neither was trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from envs.costs.costs import AUTO, timed
from graphs.load import load_cluster, load_graph
from graphs.problem import Problem
from training.whole_plans.random_chains import random_chain
from training.whole_plans.settings import WholePlans

VALIDATION, TEST = SPLITS = ("chains of a kind held out", "captured models")
CHAINS = 6
FIRST = 1 << 40  # the number of the first chain: none that weights are chosen by
MODELS = {
    "VGG-16": "vgg:layers=16,image=192,batch=96",
    "ResNet-50": "resnet:layers=50,image=192,batch=96",
    "Transformer": "transformer:layers=10,width=768,heads=12,sequence=512,batch=16",
    "RNN language model": "rnnlm:layers=3,steps=20,hidden=2048,batch=64",
}
CLUSTERS = {
    "four P100": "p100:devices=4",
    "V100, 2 servers of 4": "v100_servers:servers=2,devices=4",
    "2 V100 and an A100": "v100_a100",
}


@dataclass(frozen=True)
class Case:
    """A model on a cluster."""

    split: str
    model: str
    cluster: str
    problem: Callable[[], Problem]

    @property
    def name(self) -> str:
        """Of the file of its measurements."""
        return "-".join((self.model, self.cluster)).replace(",", "").replace(" ", "_")


def cases() -> list[Case]:
    """All, those of validation first."""
    chains = [
        Case(VALIDATION, f"chain {number}", "random", partial(_chain, number)) for number in range(CHAINS)
    ]  # fmt: skip
    return chains + [
        Case(TEST, model, cluster, partial(_captured, spec, where))
        for cluster, where in CLUSTERS.items() for model, spec in MODELS.items()
    ]  # fmt: skip


def _chain(number: int) -> Problem:
    rng = np.random.default_rng(FIRST + number)
    return random_chain(rng, str(rng.choice(WholePlans().held_out)))


def _captured(spec: str, cluster: str) -> Problem:
    return timed(Problem(load_graph(spec, with_law=True), load_cluster(cluster)), AUTO)
