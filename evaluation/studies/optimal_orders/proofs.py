"""Optima of small problems: under each fixed rule, and with the order free, with the proof."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from evaluation.studies.pieces import PIECES, SavedJob
from evaluation.studies.problems import tied
from graphs.load import load_cluster
from graphs.problem import Problem
from placers.exact import Exact

RULES = ("fifo", "program", "longest_path")
GRAPHS = (
    "layered:depth=2,breadth=3", "layered:depth=3,breadth=2", "inception:blocks=1", "cifar10:layers=1", "vgg:layers=11",
    "wavenet:stacks=1,layers=2", "transformer:layers=1", "transformer_xl:layers=1", "bert:layers=1", "xlnet:layers=1",
    "vit:layers=1", "llama:layers=1", "nmt:layers=1,steps=1", "rnnlm:layers=2,steps=2",
)  # fmt: skip
CLUSTERS = ("p100:devices=2", "p2_8xlarge:links=placeto,devices=2")
OPS = 200  # that exact may take here


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is known of a problem; all seconds are of a step."""

    problem: str
    ops: int
    groups: int
    rule_seconds: dict[str, float]  # the best of all placements under each rule
    free_seconds: float  # the best placement and order that were found
    bound_seconds: float  # that no plan beats

    @property
    def gap(self) -> float:
        """By what share of the bound a better plan might be faster."""
        return self.free_seconds / self.bound_seconds - 1


def jobs(out: Path, groups: int, work: float) -> list[SavedJob]:
    """A job per problem."""
    return [
        SavedJob(out / PIECES / f"{groups}-{number:02d}.json", partial(_proof_of, graph, cluster, groups, work))
        for number, (cluster, graph) in enumerate(_crossed(CLUSTERS, GRAPHS))
    ]


def proof(problem: Problem, work: float) -> Proof:
    """Simulate all placements of a small problem under each rule, and search all orders with CP-SAT's `work`."""
    count = len(problem.cluster) ** problem.graph.num_units
    by_rule = Exact(ops=OPS, order="rule")
    rules = {rule: by_rule.solve(replace(problem, order=rule), budget=count).step_seconds for rule in RULES}
    fastest = min(rules, key=rules.__getitem__)
    free = Exact(ops=OPS, work=work).solve(replace(problem, order=fastest), budget=4 * count)
    return Proof(
        problem=problem.name, ops=len(problem.graph), groups=problem.graph.num_units, rule_seconds=rules,
        free_seconds=free.step_seconds, bound_seconds=free.bound_seconds,
    )  # fmt: skip


def _proof_of(graph: str, cluster: str, groups: int, work: float) -> Proof:
    return proof(Problem(tied(graph, groups), load_cluster(cluster)), work)


def _crossed(clusters: Iterable[str], graphs: Iterable[str]) -> list[tuple[str, str]]:
    named = list(graphs)
    return [(cluster, graph) for cluster in clusters for graph in named]
