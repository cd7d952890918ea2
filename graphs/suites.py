"""Suites: the problems that papers compare on, each a graph and the cluster that it is placed on.

- gdp12: the twelve workloads of GDP's table (Zhou et al. 2019), with the numbers of P100 cards given there.
- placeto: the three models of Placeto's table (Addanki et al. 2019), on two and four GPUs of a p2.8xlarge.

The papers give the models; batch sizes, and the sizes that they leave open, are those of the families' configurations.
"""

from __future__ import annotations

from graphs.by_name import unknown
from graphs.errors import InputError
from graphs.load import load_cluster, load_graph
from graphs.problem import Problem

SUITES: dict[str, tuple[tuple[str, str], ...]] = {
    "gdp12": (
        ("rnnlm:rnnlm-2", "p100:devices=2"),
        ("rnnlm:rnnlm-4", "p100:devices=4"),
        ("gnmt:gnmt-2", "p100:devices=2"),
        ("gnmt:gnmt-4", "p100:devices=4"),
        ("gnmt:gnmt-8", "p100:devices=8"),
        ("transformer_xl:transformer-xl-2", "p100:devices=2"),
        ("transformer_xl:transformer-xl-4", "p100:devices=4"),
        ("transformer_xl:transformer-xl-8", "p100:devices=8"),
        ("inception_v3:inception-v3", "p100:devices=2"),
        ("amoebanet:amoebanet", "p100:devices=4"),
        ("wavenet:wavenet-2x18", "p100:devices=2"),
        ("wavenet:wavenet-4x36", "p100:devices=4"),
    ),
    "placeto": (
        ("inception_v3:inception-v3", "p2_8xlarge:links=placeto,devices=2"),
        ("inception_v3:inception-v3", "p2_8xlarge:links=placeto,devices=4"),
        ("nmt:nmt", "p2_8xlarge:links=placeto,devices=2"),
        ("nmt:nmt", "p2_8xlarge:links=placeto,devices=4"),
        ("nasnet:nasnet", "p2_8xlarge:links=placeto,devices=2"),
        ("nasnet:nasnet", "p2_8xlarge:links=placeto,devices=4"),
    ),
}


def suite_specs(name: str) -> tuple[tuple[str, str], ...]:
    """Graph and cluster of each problem of a suite. Raises InputError for an unknown suite."""
    if name not in SUITES:
        raise InputError(unknown("suite", name, SUITES))
    return SUITES[name]


def load_suite(name: str, *, groups: int | None = 128, optimizer: str = "adam") -> list[Problem]:
    """The problems of a suite, their ops tied into op groups. Raises InputError for an unknown suite."""
    graphs = {spec: load_graph(spec, groups=groups) for spec in dict(suite_specs(name))}
    return [Problem(graphs[graph], load_cluster(cluster), optimizer) for graph, cluster in suite_specs(name)]
