"""Splits against one another: placers that divide ops, on eight devices of one server, judged by the engine.

    python -m evaluation.studies.splits --out runs/studies/splits

Six models, and one that fits on no single device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from evaluation.records.journal import JournalEntry, plans
from evaluation.records.record import Record
from evaluation.studies.comparisons import compared
from evaluation.studies.problems import model_problem
from evaluation.studies.simulated import Simulated
from evaluation.studies.study import report, run
from evaluation.tables.plan_memory import DeviceMemory
from graphs.foundation.errors import InputError
from graphs.problem import Problem

CLUSTER = "p100:devices=8"
MODELS = {
    "VGG-19": "vgg:vgg-19,batch=32",
    "ResNet-50": "resnet:resnet-50,batch=64",
    "GPT-2": "transformer:gpt2,batch=32",
    "Llama": "llama:layers=12,width=1024,heads=16,inner=2752,sequence=512,batch=32",
    "BERT": "bert:bert-large,batch=32",
    "RNN language model": "rnnlm:layers=2,steps=20,hidden=1024,batch=64",
}
LARGE = {"Llama, 1.3 billion": "llama:layers=24,width=2048,heads=16,inner=5504,sequence=512,batch=16"}
OURS = "split_search"
EXPERTS = ("data_parallel", "tensor_parallel")
RIVALS = (*EXPERTS, "tofu", "optcnn")
FEW = 8  # simulations for a rival that chooses by them, as data parallelism its micro-batches
EQUAL = 1e-9  # relative: the same plan


class Held(NamedTuple):
    """Bytes on the fullest device when it holds most."""

    peak: float
    state: float  # weights, gradients, optimizer state
    outputs: float  # made there
    buffers: float  # copies of what other devices made, and parts of sums on their way

    @classmethod
    def of(cls, timeline: Timeline) -> Held:
        """Of a simulated step."""
        most = max(DeviceMemory.of(timeline), key=lambda each: each.peak)
        return cls(most.peak, most.weights + most.state, most.activations + most.versions, most.received + most.sums)


class Placed(NamedTuple):
    """A plan."""

    record: Record
    held: Held
    moved: float  # bytes

    @property
    def rank(self) -> tuple[bool, float]:
        """The smaller, the better: what fits, and then the faster."""
        return not self.record.fits, self.record.step_seconds


class Model(NamedTuple):
    """All plans of a model."""

    model: str
    devices: int
    alone: Held  # all on one device, whether it fits there or not
    fits_alone: bool
    plans: dict[str, Placed]  # by placer

    @classmethod
    def of(cls, name: str, problem: Problem, entries: Sequence[JournalEntry]) -> Model:
        """What the plans of a journal hold and move, by simulating them again."""
        alone = simulate(problem, Plan(((0,),) * len(problem.graph)))
        placed = {}
        for entry in entries:
            step = simulate(problem, entry.plan(problem))
            moved = float(step.graph.moved_bytes[step.transfers.output].sum())
            placed[entry.record.placer] = Placed(entry.record, Held.of(step), moved)
        return cls(name, len(problem.cluster), Held.of(alone), alone.fits, placed)


@dataclass(frozen=True)
class SplitFindings:
    """What is measured of a study."""

    models: Sequence[Model]

    def best_expert(self, model: Model) -> Placed:
        """The better one of data and tensor parallelism."""
        return min((model.plans[placer] for placer in EXPERTS), key=lambda placed: placed.rank)

    def behind(self) -> list[Model]:
        """Where one of these is faster than ours."""
        return [
            model for model in self.models
            if (expert := self.best_expert(model).record).fits and not (
                (ours := model.plans[OURS].record).fits and ours.step_seconds <= expert.step_seconds * (1 + EQUAL)
            )
        ]  # fmt: skip

    def gain(self, model: Model) -> float:
        """By which share our step is shorter than that of the better expert."""
        return 1 - model.plans[OURS].record.step_seconds / self.best_expert(model).record.step_seconds

    def cell(self, model: Model, placer: str) -> str:
        """Milliseconds of a step, or that it does not fit."""
        record = model.plans[placer].record
        return f"{1e3 * record.step_seconds:.2f}" if record.fits else "does not fit"

    def share(self, model: Model, placed: Placed) -> float:
        """What the fullest device holds but for buffers, as a share of what one device alone would."""
        return (placed.held.peak - placed.held.buffers) / model.alone.peak


@dataclass(frozen=True, kw_only=True)
class Splits(Simulated):
    """Place six models, and one that fits on no single device, with placers that divide ops."""

    name = "splits"
    cluster: str = CLUSTER
    """The devices."""
    budget: int = 60
    """Simulations of the search for splits."""

    def do(self) -> None:
        """All models with all placers."""
        problems = {self._name(model): partial(self._problem, model) for model in MODELS | LARGE}
        report(compared(self._journal, self._allowed, problems, about="splits", workers=self.workers))

    def save(self, folder: Path) -> Path:
        """Write `splits.md`; the plans that are done are simulated again for what their devices hold."""
        done: dict[str, dict[str, JournalEntry]] = {}
        for entry in plans(self._journal) if self._journal.is_file() else ():
            if self._allowed.get(entry.record.placer) == entry.record.budget:
                done.setdefault(entry.record.problem, {})[entry.record.placer] = entry
        whole = [model for model in MODELS | LARGE if done.get(self._name(model), {}).keys() == self._allowed.keys()]
        if not whole:
            raise InputError(f"{self.folder}: no model is placed yet on {self.cluster} with a budget of {self.budget}")
        models = [Model.of(model, self._problem(model), [*done[self._name(model)].values()]) for model in whole]
        return self.written(
            folder, (each.plans[OURS].record for each in models), command=self.command("cluster", "budget"),
            found=SplitFindings(models),
            placers=(*RIVALS, OURS), ours=OURS, specs=MODELS | LARGE, budget=self.budget, cluster=self.cluster,
            large=[model for model in models if not model.fits_alone],
        )  # fmt: skip

    @property
    def _journal(self) -> Path:
        return self.folder / f"plans{self.suffix}.jsonl"

    @property
    def _allowed(self) -> dict[str, int]:
        return {**dict.fromkeys(RIVALS, FEW), OURS: self.budget}

    def _name(self, model: str) -> str:
        return f"{model}@{self.cluster}"

    def _problem(self, model: str) -> Problem:
        return model_problem((MODELS | LARGE)[model], self.cluster, self._name(model), **self.timing)


if __name__ == "__main__":
    run(Splits)
