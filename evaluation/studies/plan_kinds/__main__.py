"""When which kind of plan wins: op placement, data parallelism, pipelines and their mixtures, over numbers of devices.

python -m evaluation.studies.plan_kinds --out runs/studies/plan_kinds
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from evaluation.drawing.figures import BLUE, GREEN, ORANGE, PURPLE
from evaluation.records.formatting import memory
from evaluation.records.journal import records
from evaluation.records.record import Record
from evaluation.records.statistics import geometric_mean
from evaluation.studies.comparisons import compared
from evaluation.studies.problems import model_problem
from evaluation.studies.simulated import Simulated
from evaluation.studies.study import report, run
from graphs.foundation.errors import InputError

PLACEMENT, DATA, PIPELINE, MIXTURE = KINDS = ("op placement", "data parallelism", "pipeline", "mixture")
MODELS = {  # what each is called, and its spec: a step has 64 samples, and does all of them at once on no device
    "Transformer": "transformer:layers=24,width=1024,heads=16,sequence=256,batch=64",
    "VGG-19": "vgg:layers=19,image=224,batch=64",
    "GNMT": "gnmt:layers=8,steps=8,hidden=1024,batch=256",
}
CLUSTERS = {  # by the number of devices
    "P100, one server": {1: "p100:devices=1", 2: "p100:devices=2", 4: "p100:devices=4", 8: "p100:devices=8"},
    "V100, two servers": {
        1: "v100_servers:servers=1,devices=1", 2: "v100_servers:servers=2,devices=1",
        4: "v100_servers:servers=2,devices=2", 8: "v100_servers:servers=2,devices=4",
    },
}  # fmt: skip
GROUPS = 256  # op groups, as `placelab place` makes them, that the search decides about
PER_STAGE = (2, 4)  # micro-batches
ORDERS = ("", ",order=early_backward_a")  # GPipe's own, and 1F1B
RIVAL_BUDGET = 8  # simulations of placers of whole plans
EQUAL = 0.01  # kinds whose times differ by less are equally fast
STYLES = {PLACEMENT: (ORANGE, "o"), DATA: (BLUE, "s"), PIPELINE: (GREEN, "^"), MIXTURE: (PURPLE, "D")}


class Case(NamedTuple):
    """A model on a number of devices, and the plans for it."""

    model: str
    cluster: str
    devices: int
    plans: tuple[Record, ...] = ()

    @property
    def samples(self) -> int:
        """Of a step."""
        return self.plans[0].samples

    def of(self, kind: str) -> list[Record]:
        """The plans of a kind."""
        return [plan for plan in self.plans if plan.placer in placers(self.devices)[kind]]


def cases() -> Iterator[Case]:
    """All, without plans."""
    for model in MODELS:
        yield from (Case(model, name, devices) for name, by_devices in CLUSTERS.items() for devices in by_devices)


def placers(devices: int) -> dict[str, list[str]]:
    """By kind, on a number of devices; on one device, data parallelism accumulates gradients."""
    found = {kind: list[str]() for kind in KINDS}
    found[PLACEMENT] = ["annealing"]
    found[DATA] = ["data_parallel", "data_parallel:all_reduce=hierarchical"][: 2 if devices > 2 else 1]
    for replicas in (number for number in range(1, devices) if devices % number == 0):
        kind, own = (PIPELINE, "") if replicas == 1 else (MIXTURE, f",replicas={replicas}")
        counts = [per_stage * devices // replicas for per_stage in PER_STAGE]
        found[kind] += [f"gpipe:micro_batches={count}{own}{order}" for count in counts for order in ORDERS]
    return found


@dataclass(frozen=True, kw_only=True)
class PlanKinds(Simulated):
    """Measure all kinds of plans for three models on one to eight devices."""

    name = "plan_kinds"
    budget: int = 2000
    """Simulations of the search for an op placement."""

    def do(self) -> None:
        """Each kind on each number of devices."""
        for devices, whole in self._allowed.items():
            some = [case for case in cases() if case.devices == devices]
            for placers_of, groups in (({"annealing": self.budget}, GROUPS), (whole, None)):
                problems = {
                    _name(case): partial(
                        model_problem,
                        MODELS[case.model],
                        CLUSTERS[case.cluster][devices],
                        _name(case),
                        groups=groups,
                        **self.timing,
                    )
                    for case in some
                }
                about = f"{devices} devices"
                report(compared(self._journal, placers_of, problems, about=about, workers=self.workers))

    def save(self, folder: Path) -> Path:
        """Write `plan_kinds.md` and its figure."""
        allowed = [whole | {"annealing": self.budget} for whole in self._allowed.values()]
        every = dict.fromkeys(record for each in allowed for record in records(self._journal, each))
        done = {case: tuple(each for each in every if each.problem == _name(case)) for case in cases()}
        found = KindFindings([case._replace(plans=plans) for case, plans in done.items() if plans])
        if not found.cases:
            raise InputError(
                f"{self.folder}: no problem is measured yet with a budget of {self.budget}; leave out --write-only"
            )
        return self.written(
            folder, (plan for case in found.cases for plan in case.plans), painted=(partial(_panels, found=found), 5.4),
            command=self.command("budget"), found=found, kinds=KINDS, models=MODELS, clusters=CLUSTERS, groups=GROUPS,
            equal=EQUAL, budget=self.budget,
            cases=sorted(found.cases, key=lambda case: (case.cluster, list(MODELS).index(case.model), case.devices)),
        )  # fmt: skip

    @property
    def _journal(self) -> Path:
        return self.folder / f"plans{self.suffix}.jsonl"

    @property
    def _allowed(self) -> dict[int, dict[str, int]]:
        """By the number of devices, the placers of whole plans, and how much each may simulate."""
        counts = dict.fromkeys(case.devices for case in cases())
        whole = {devices: [each for kind in KINDS[1:] for each in placers(devices)[kind]] for devices in counts}
        return {devices: dict.fromkeys(some, RIVAL_BUDGET) for devices, some in whole.items()}


def _name(case: Case) -> str:
    return f"{case.model}@{case.cluster}, {case.devices}"


class Loss(NamedTuple):
    """Where one kind of plan is slower than another."""

    case: Case
    ratio: float  # of their step times


@dataclass(frozen=True)
class KindFindings:
    """What is measured of a study."""

    cases: Sequence[Case]

    @property
    def several(self) -> list[Case]:
        """The cases of several devices."""
        return [case for case in self.cases if case.devices > 1]

    def best(self, case: Case, kind: str) -> Record | None:
        """The fastest plan of a kind that fits."""
        return min((plan for plan in case.of(kind) if plan.fits), key=_seconds, default=None)

    def winners(self, case: Case) -> list[str]:
        """The fastest kinds: several that are equally fast."""
        best = {kind: one.step_seconds for kind in KINDS if (one := self.best(case, kind))}
        return [kind for kind, seconds in best.items() if seconds <= (1 + EQUAL) * min(best.values())]

    def wins(self) -> Counter[str]:
        """On how many cases of several devices each kind is the fastest, alone or with others."""
        return Counter(kind for case in self.several for kind in self.winners(case))

    def slower(self, kind: str, than: str) -> list[Loss]:
        """The cases of several devices where the fastest plan of a kind is slower than that of another, most first."""
        both = [(case, self.best(case, kind), self.best(case, than)) for case in self.several]
        losses = [Loss(case, own.step_seconds / rival.step_seconds) for case, own, rival in both if own and rival]
        return sorted((loss for loss in losses if loss.ratio > 1 + EQUAL), key=lambda loss: -loss.ratio)

    def alone(self, kind: str) -> list[Case]:
        """The cases of several devices where a kind is faster than all others."""
        return [case for case in self.several if self.winners(case) == [kind]]

    def unfit(self, kind: str) -> list[Case]:
        """The cases where no plan of a kind fits, though there are some."""
        return [case for case in self.cases if case.of(kind) and not self.best(case, kind)]

    def mean(self, kind: str, over: str) -> float:
        """Geometric mean of a kind's step time over another's, where both fit, on several devices."""
        pairs = [(self.best(case, kind), self.best(case, over)) for case in self.several]
        ratios = np.array([own.step_seconds / other.step_seconds for own, other in pairs if own and other])
        return float(geometric_mean(ratios)) if len(ratios) else np.nan

    def cell(self, case: Case, kind: str) -> str:
        """Milliseconds per sample; or what the plan that comes nearest to fitting needs."""
        if one := self.best(case, kind):
            text = f"{1e3 * one.step_seconds / case.samples:.3f}"
            return f"**{text}**" if kind in self.winners(case) else text
        needed = min((max(each.peak_bytes) for each in case.of(kind)), default=None)
        return "-" if needed is None else f"does not fit: {memory(needed)}"

    def cells(self, case: Case) -> list[str]:
        """The same of all kinds."""
        return [self.cell(case, kind) for kind in KINDS]

    def chosen(self, case: Case) -> str:
        """The placer of the fastest plan."""
        return min((one for one in case.plans if one.fits), key=_seconds).placer if self.winners(case) else "-"


def _seconds(plan: Record) -> float:
    return plan.step_seconds


def _panels(figure: Figure, found: KindFindings) -> None:
    """A panel per model and cluster: milliseconds per sample over devices, a line per kind of plan that fits."""
    models, clusters = (list(dict.fromkeys(each)) for each in zip(*_named(found), strict=True))
    panels = figure.subplots(len(clusters), len(models), sharex=True, squeeze=False)
    for row, cluster in zip(panels, clusters, strict=True):
        for axes, model in zip(row, models, strict=True):
            cases = [case for case in found.cases if (case.model, case.cluster) == (model, cluster)]
            cases = sorted(cases, key=lambda case: case.devices)
            for kind in KINDS:
                fitting = [(case, one) for case in cases if (one := found.best(case, kind))]
                across = [case.devices for case, _ in fitting]
                up = [1e3 * one.step_seconds / case.samples for case, one in fitting]
                colour, marker = STYLES[kind]
                axes.plot(across, up, color=colour, marker=marker, markersize=4, linewidth=1.4, label=kind)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(lambda value, _: f"{value:g}")
                axis.set_minor_formatter(NullFormatter())
            axes.set_title(f"{model}\n{cluster}", fontsize=8)
            axes.grid()
    for axes in panels[-1]:
        axes.set_xlabel("devices")
    figure.supylabel("milliseconds per sample", fontsize=9)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(KINDS), fontsize=8)


def _named(found: KindFindings) -> list[tuple[str, str]]:
    """(model, cluster) of all cases, in the order of the study."""
    order = list(MODELS)
    named = {(case.model, case.cluster) for case in found.cases}
    return sorted(named, key=lambda pair: (order.index(pair[0]), pair[1]))


if __name__ == "__main__":
    run(PlanKinds)
