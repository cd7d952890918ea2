"""A profiled model: how long its ops took on this machine, and how far the roofline is from that, per kind of op."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Group, RenderableType
from rich.table import Column
from rich.text import Text

from envs.costs.cost_models.roofline import Roofline
from envs.costs.costs import issued_by
from envs.costs.efficiency_file import Efficiencies, Efficiency, KindClass, save_efficiencies
from envs.costs.op_times import is_free
from envs.costs.profile_file import Profile, ProfiledMachine
from evaluation.records.formatting import numbers, ratio, seconds, share, table
from evaluation.records.printed import Printed
from evaluation.records.statistics import geometric_mean
from graphs.cluster import Cluster
from graphs.host import Host
from graphs.op_graph import Floats, OpGraph
from graphs.problem import Problem

LEAST_BUSY = 0.1  # launches; an op that is hardly more than its launch works at least this long


@dataclass(frozen=True)
class KindProfile:
    """All ops of one kind."""

    kind: str
    ops: int
    distinct: int
    seconds: float  # of all of them in a step, launches included
    share: float  # of the step's time
    over_roofline: float  # geometric mean over the ops of measured / (roofline + launch)
    work_seconds: float  # of all of them by the roofline, without launches
    efficiency: float  # share of the machine's speeds with which the roofline takes as long as was measured in all


@dataclass(frozen=True, eq=False)
class ProfileReport(Printed):
    """A profiled graph and its roofline, at the speeds that the machine reaches in a large product and copy."""

    name: str
    machine: ProfiledMachine
    kinds: list[KindProfile]  # the one that takes longest first
    seconds: float  # of one step, op after op
    roofline_seconds: float  # the same by the roofline, launches included
    over_roofline: float  # geometric mean over all ops
    refused: dict[str, str]  # op signature -> why PyTorch could not run it alone
    unknown: int  # ops without a time
    host: Host | None = None  # as measured in the graph's step

    @classmethod
    def of(cls, profile: Profile, graph: OpGraph) -> ProfileReport:
        """The report on one of the graphs of a profile."""
        device = profile.machine.device()
        alone = np.zeros((1, 1))
        cluster = Cluster(profile.machine.kind, (device,), alone, alone, np.zeros((1, 1), np.int64))
        roofline = Roofline().costs(Problem(graph, cluster)).op_seconds[:, 0]
        measured = profile.seconds(graph)
        timed = ~np.isnan(measured) & ~is_free(graph)
        launch = device.launch_seconds
        distinct = Counter(op.kind for op in profile.ops if graph.name in op.ops)
        total = float(measured[timed].sum())
        of_kind = np.array(graph.kinds)
        over_roofline = measured[timed] / (roofline[timed] + launch)
        kinds = [
            _kind(kind, distinct[kind], measured[rows], roofline[rows], launch, total)
            for kind in dict.fromkeys(graph.kinds)
            if (rows := timed & (of_kind == kind)).any()
        ]
        return cls(
            name=graph.name,
            machine=profile.machine,
            kinds=sorted(kinds, key=lambda each: -each.seconds),
            seconds=total,
            roofline_seconds=float((roofline[timed] + launch).sum()),
            over_roofline=float(geometric_mean(over_roofline)) if timed.any() else math.nan,
            refused=dict(profile.refused),
            unknown=int(np.isnan(measured).sum()),
            host=profile.host(graph.name) if graph.name in profile.hosts else None,
        )

    def save_efficiencies(self, path: Path) -> None:
        """Write, for `roofline:efficiency=FILE`, the shares with which the roofline takes as long as was measured.

        Kinds whose ops work for less than a launch say nothing of speed: they count as all others do in the mean.
        """
        telling = [each for each in self.kinds if each.work_seconds >= each.ops * self.machine.launch_seconds]
        classes = [
            KindClass(name=each.kind, kinds=[each.kind], arithmetic=each.efficiency, traffic=each.efficiency)
            for each in telling
        ]
        work = sum(each.work_seconds for each in telling)
        all_in_all = work / sum(each.work_seconds / each.efficiency for each in telling) if telling else 1.0
        other = Efficiency(arithmetic=all_in_all, traffic=all_in_all)
        source = f"measured on {self.machine.described()}, with the ops of {self.name}"
        save_efficiencies(Efficiencies(source=source, other=other, classes=classes), path)

    def to_json(self) -> dict[str, object]:
        """As a record."""
        record: dict[str, object] = msgspec.to_builtins(self)
        return record

    def _shown(self) -> RenderableType:
        heads = numbers("ops", "distinct", "time", "share of time", "over roofline", "efficiency")
        kinds = table(self.name, Column("kind", overflow="fold"), *heads)
        for each in self.kinds:
            kinds.add_row(
                each.kind, f"{each.ops:,}", f"{each.distinct:,}", seconds(each.seconds),
                share(each.share), ratio(each.over_roofline), share(each.efficiency),
            )  # fmt: skip
        return Group(kinds, *map(Text, self._sentences()))

    def _sentences(self) -> list[str]:
        machine = self.machine
        ops = "op" if self.unknown == 1 else "ops"
        refused = f"{self.unknown} {ops} could not be run alone, such as {next(iter(self.refused), '?')}."
        return [
            f"Measured on {machine.described()}: {machine.flops_per_second / 1e9:,.0f} GFLOP/s in a large product, "
            f"{machine.bytes_per_second / 1e9:,.0f} GB/s in a large copy, {seconds(machine.launch_seconds)} "
            "to launch an op.",
            f"All ops one after another take {seconds(self.seconds)}, by the roofline at these speeds "
            f"{seconds(self.roofline_seconds)}; an op takes {ratio(self.over_roofline)} times the "
            "roofline's time in the geometric mean.",
            "Efficiency: the share of these speeds that ops of a kind reach, their launches left out; more than 100% "
            "is of "
            "what caches hold.",
            *([refused] if self.unknown else []),
            *([issued_by(self.host, "as measured in its step")] if self.host else []),
        ]


def _kind(kind: str, distinct: int, measured: Floats, roofline: Floats, launch: float, total: float) -> KindProfile:
    """From the seconds of a kind's ops, (ops of the kind,), measured with and by the roofline without launches."""
    busy = np.maximum(measured - launch, LEAST_BUSY * launch)
    return KindProfile(
        kind=kind,
        ops=len(measured),
        distinct=distinct,
        seconds=float(measured.sum()),
        share=float(measured.sum()) / total,
        over_roofline=float(geometric_mean(measured / (roofline + launch))),
        work_seconds=float(roofline.sum()),
        efficiency=float(roofline.sum() / busy.sum()),
    )
