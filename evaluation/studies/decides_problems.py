"""The problems that the study of what decides judges by."""

from __future__ import annotations

from tqdm import tqdm

from evaluation.studies.captures import tied
from evaluation.studies.decides_variants import CLUSTERS, FAMILIES, GROUPS
from graphs.load import load_cluster, split
from graphs.problem import Problem

UNSEEN = "nmt"  # never trained on


def held_out_problems(unseen_graphs: int) -> list[Problem]:
    """The test graphs of the families, and some of the family that is never trained on, on each cluster."""
    specs = [*split(FAMILIES, "test"), *split([UNSEEN], "test")[:unseen_graphs]]
    named = tqdm(specs, desc="problems to judge by", leave=False, disable=None)
    return [Problem(tied(spec, GROUPS), load_cluster(name)) for spec in named for name in CLUSTERS]
