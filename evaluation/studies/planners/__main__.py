"""Planners against one another: papers' planners and placelab's own, all judged by the engine, op by op.

    python -m evaluation.studies.planners --data FOLDER --out runs/studies/planners

All cases are planned first; the longer searches follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from evaluation.drawing.figures import BLUE, ORANGE
from evaluation.records.journal import records
from evaluation.records.record import Record
from evaluation.records.statistics import Estimate, estimate, geometric_mean
from evaluation.studies.comparisons import compared
from evaluation.studies.problems import ConditionOptions, Problems, measured_problem, model_problem
from evaluation.studies.simulated import Simulated
from evaluation.studies.study import report, run
from graphs.descriptions.another_batch import with_batch
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.problem import Problem

PROFILED, CAPTURED = SOURCES = ("published profiles", "captured models")
TESTBEDS = ("A", "B", "C")


@dataclass(frozen=True)
class ProfiledModel:
    """A profile that was published, and the batch that it is planned for."""

    file: str  # in the folder of profiles
    samples: int  # of the profile
    batch: int  # of a step, on sixteen devices
    source: str  # of the batch


PROFILES = {
    "BERT-48": ProfiledModel("dapple/bert-48-pbs-2.txt", 2, 64, "DAPPLE, table V"),
    "VGG-19": ProfiledModel("dapple/vgg-19-pbs-32.txt", 32, 2048, "DAPPLE, table V"),
    "GNMT-8": ProfiledModel("pipedream/gnmt.txt", 64, 1024, "DAPPLE, table V, of GNMT-16"),
    "Inception-v3": ProfiledModel("pipedream/inception_v3.txt", 128, 2048, "that of ResNet-50"),
    "ResNet-50": ProfiledModel("pipedream/resnet50.txt", 128, 2048, "DAPPLE, table V"),
    "VGG-16": ProfiledModel("pipedream/vgg16.txt", 128, 2048, "that of VGG-19"),
}
MODELS = {
    "GPT-2": "transformer:gpt2,batch=32",
    "Llama": "llama:layers=12,width=1024,heads=16,inner=2752,sequence=512,batch=32",
    "BERT": "bert:bert-large,batch=32",
    "ViT": "vit:vit-base,batch=64",
    "ResNet-152": "resnet:resnet-152,batch=64",
    "GNMT-4": "gnmt:gnmt-4",
}
CLUSTERS = {
    "four P100": "p100:devices=4",
    "V100, 2 servers of 4": "v100_servers:servers=2,devices=4",
    "3090 and 3060": "rtx3090_rtx3060",
    "2 V100 and an A100": "v100_a100",
    "home fleet": "home_fleet",
}


OURS = "planner"
RIVALS = {  # what each is called, and its spec
    "single device": "single_device",
    "data parallelism": "data_parallel",
    "equal split, GPipe": "gpipe",
    "equal split, 1F1B": "gpipe:order=early_backward_a",
    "equal split, recomputing": "gpipe:order=early_backward_a,recompute=true",
    "PipeDream": "pipedream:form=printed,flush=true",
    "PipeDream, released": "pipedream:form=released,flush=true",
    "Black GPipe": "black_gpipe",
    "DAPPLE": "dapple",
    "DAPPLE, corrected": "dapple:form=corrected",
    "DAPPLE, released": "dapple:form=released",
    "human expert": "human_expert",
}
LONGER = 10  # times the budget, for a search that shows what the budget misses
EQUAL = 1e-9  # relative: the same plan
CLOSE = 0.01  # to what a longer search finds
RIVAL_BUDGET = 8  # simulations of a rival that chooses by them


class Case(NamedTuple):
    """The plans for a model on a cluster."""

    source: str
    model: str
    cluster: str
    ours: Record
    rivals: Mapping[str, Record]  # by what they are called; not those that refused

    @property
    def best(self) -> str:
        """The fastest rival whose plan fits, or ""."""
        fitting = [name for name, each in self.rivals.items() if each.fits]
        return min(fitting, key=lambda name: self.rivals[name].step_seconds, default="")


def problems(profiles: Path | None, timing: ConditionOptions) -> Problems:
    """All, without those of profiles if no folder of these is given. Raises InputError for a file that is missing."""
    captured = {
        f"{model}@{cluster}": partial(model_problem, spec, where, f"{model}@{cluster}", **timing)
        for model, spec in MODELS.items() for cluster, where in CLUSTERS.items()
    }  # fmt: skip
    if profiles is None:
        return captured
    for path in (profiles / profile.file for profile in PROFILES.values()):
        if not path.is_file():
            raise InputError(f"{path} is missing; --data is a folder with dapple/ and pipedream/")
    profiled = {
        f"{model}@testbed {testbed}": partial(_profiled, profiles, model, testbed, timing)
        for model in PROFILES for testbed in TESTBEDS
    }  # fmt: skip
    return profiled | captured


def _profiled(folder: Path, model: str, testbed: str, timing: ConditionOptions) -> Problem:
    profile = PROFILES[model]
    graph = with_batch(load_graph(f"{folder / profile.file}:batch={profile.samples}"), profile.batch)
    cluster = replace(load_cluster(f"dapple:testbed={testbed}"), name=f"testbed {testbed}")
    return measured_problem(replace(graph, name=model), cluster, **timing)


@dataclass(frozen=True, kw_only=True)
class Planners(Simulated):
    """Plan profiles that PipeDream and DAPPLE published, and captured models, with all planners."""

    name = "planners"
    data: Path | None = None
    """The folder with the published profiles, in pipedream/ and dapple/; without it, only models are planned."""
    budget: int = 1000
    """Simulations of placelab's planner; a search ten times as long is compared with it."""

    def do(self) -> None:
        """All planners on all cases, and then longer searches."""
        some = problems(self.data, self.timing)
        for journal, allowed in self._allowed.items():
            report(compared(self.folder / journal, allowed, some, about=journal, workers=self.workers))

    def save(self, folder: Path) -> Path:
        """Write `planners.md` and its figure."""
        done, longer = (
            {(each.problem, each.placer): each for each in records(self.folder / journal, allowed)}
            for journal, allowed in self._allowed.items()
        )
        names = [name for name, placer in done if placer == OURS]
        if not names:
            raise InputError(f"{self.folder}: no case is planned yet with a budget of {self.budget}")
        cases = [_case(name, done) for name in sorted(names, key=list(_sources()).index)]
        found = PlannerFindings(cases, {name: each.step_seconds for (name, _), each in longer.items()})
        sources = [source for source in SOURCES if any(case.source == source for case in cases)]
        options = {"data": "FOLDER"} if PROFILED in sources else {}
        return self.written(
            folder, (case.ours for case in cases), painted=(partial(_bars, found=found), 5.6),
            command=self.command(**options, budget=self.budget), found=found, rivals=RIVALS, sources=sources,
            profiles=PROFILES, models=MODELS, clusters=CLUSTERS, close=CLOSE, longer=LONGER, budget=self.budget,
        )  # fmt: skip

    @property
    def _allowed(self) -> dict[str, dict[str, int]]:
        """Of each journal, how much its placers may simulate."""
        rivals = dict.fromkeys(RIVALS.values(), RIVAL_BUDGET)
        return {
            f"planned{self.suffix}.jsonl": rivals | {OURS: self.budget},
            f"longer{self.suffix}.jsonl": {OURS: LONGER * self.budget},
        }


def _sources() -> dict[str, str]:
    """Whence each problem is, in their order."""
    profiled = {f"{model}@testbed {testbed}": PROFILED for model in PROFILES for testbed in TESTBEDS}
    return profiled | {f"{model}@{cluster}": CAPTURED for model in MODELS for cluster in CLUSTERS}


def _case(problem: str, done: Mapping[tuple[str, str], Record]) -> Case:
    model, _, cluster = problem.rpartition("@")
    rivals = {name: done[problem, spec] for name, spec in RIVALS.items() if (problem, spec) in done}
    return Case(_sources()[problem], model, cluster, done[problem, OURS], rivals)


@dataclass(frozen=True)
class PlannerFindings:
    """What is measured of a study."""

    cases: Sequence[Case]
    longer: Mapping[str, float] = field(default_factory=dict)  # step seconds of some of the cases, by problem

    def ratio(self, case: Case) -> float:
        """Our step over the best rival's; NaN where no rival fits or ours does not."""
        fit = case.best and case.ours.fits
        return case.ours.step_seconds / case.rivals[case.best].step_seconds if fit else np.nan

    def behind(self) -> list[Case]:
        """Where a rival has the better plan."""
        return [case for case in self.cases if self.ratio(case) > 1 + EQUAL or (case.best and not case.ours.fits)]

    def equal(self) -> list[Case]:
        """Where ours is the plan of a rival, or one as fast."""
        return [case for case in self.cases if abs(self.ratio(case) - 1) <= EQUAL]

    def mean(self, source: str, rival: str = "") -> Estimate:
        """Geometric mean of our step over the best rival's, or one rival's; the interval is over models.

        A model counts with its mean over clusters. Cases where either does not fit are left out.
        """
        of_model: dict[str, list[float]] = {}
        for case in (each for each in self.cases if each.source == source and each.ours.fits):
            other = case.rivals.get(rival or case.best)
            if other and other.fits:
                of_model.setdefault(case.model, []).append(case.ours.step_seconds / other.step_seconds)
        return estimate([np.array([float(geometric_mean(np.array(ratios))) for ratios in of_model.values()])])

    def lacking(self, source: str, rival: str) -> int:
        """On how many cases a rival has no plan that fits, where there is one."""
        some = [case for case in self.cases if case.source == source and case.ours.fits]
        return sum(1 for case in some if not (rival in case.rivals and case.rivals[rival].fits))

    def wins(self) -> Counter[str]:
        """How often each rival is the best of them."""
        return Counter(case.best for case in self.cases if case.best)

    def gaps(self) -> list[tuple[Case, float]]:
        """Our step over that of the longer search, of each case that has one."""
        named = [(case, self.longer.get(case.ours.problem)) for case in self.cases]
        return [(case, case.ours.step_seconds / seconds) for case, seconds in named if seconds]

    def far(self) -> list[tuple[Case, float]]:
        """Where the longer search is better by more than `CLOSE`."""
        return [(case, gap) for case, gap in self.gaps() if gap > 1 + CLOSE]

    def cell(self, case: Case, rival: str) -> str:
        """Its step over ours, or why there is none."""
        found = case.rivals.get(rival)
        if found is None:
            return "refused"
        return f"{found.step_seconds / case.ours.step_seconds:.2f}" if found.fits else "does not fit"


def _bars(figure: Figure, found: PlannerFindings) -> None:
    """For each case, how much faster our step is than the best rival's."""
    axes = figure.subplots()
    cases = [case for case in found.cases if np.isfinite(found.ratio(case))]
    gains = [100 * (1 - found.ratio(case)) for case in cases]
    colours = [BLUE if case.source == SOURCES[0] else ORANGE for case in cases]
    axes.barh(range(len(cases)), gains, color=colours)
    axes.set_yticks(range(len(cases)), [f"{case.model}, {case.cluster}" for case in cases], fontsize=6)
    axes.invert_yaxis()
    axes.set_xlabel("step time below that of the best rival, per cent")
    for source, colour in zip(SOURCES, (BLUE, ORANGE), strict=True):
        axes.barh([0], [0], color=colour, label=source)
    axes.legend(fontsize=8)
    axes.grid(axis="x")


if __name__ == "__main__":
    run(Planners)
