"""Published plans beside the planner's: NVIDIA's for Llama 3 on H100, and the best that Sailor's rivals can say.

    python -m evaluation.studies.published --data FOLDER --out runs/studies/published

A recommendation of NVIDIA is a spec of `parallel`: what its user has by today's best advice. What is too large here is
planned in part, as the table says of each row. FOLDER has Sailor's measured layers and links, `layers.csv` and
`links.csv`; without it, there are only the recommendations.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
from matplotlib.figure import Figure

from envs.simulation.simulator import simulate
from evaluation.commands.load_placer import load_placer
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.drawing.figures import BLUE, ORANGE
from evaluation.studies.pieces import PIECES, do_pieces, load_pieces
from evaluation.studies.problems import ConditionOptions, measured_problem, model_problem
from evaluation.studies.published.findings import BEST, CLOSE, OURS, SHARDED, Answer, Compared, Judged, mean, results_of
from evaluation.studies.published.recommended import ROWS, Row
from evaluation.studies.published.sailor import SCENARIOS, Choice, Scenario, choices, pipeline_of, plan_of, workload
from evaluation.studies.published.sailor_rivals import best_of_all
from evaluation.studies.published.sailor_simulator import SailorSimulator
from evaluation.studies.simulated import Simulated
from evaluation.studies.study import run
from graphs.foundation.errors import InputError
from graphs.problem import Problem

RUNTIME = "megatron:overlap=true"  # its way of running plans, with gradients summed up while others are computed
IDEAL = ConditionOptions(runtime="ideal")  # for profiles, whose times are those of whole layers on their machine
SAILOR = "sailor"  # the folder of its pieces
ASKED = 16  # questions to the planner for each scenario: those that promise most

Kept = TypeVar("Kept", bound=msgspec.Struct)


@dataclass(frozen=True, kw_only=True)
class Published(Simulated):
    """Plan what NVIDIA recommends plans for, and Sailor's scenarios, and compare."""

    name = "published"
    runtime: str = RUNTIME
    precision: str = "bf16"
    data: Path | None = None
    """The folder with Sailor's layers and links; without it, its scenarios are left out."""
    budget: int = 60
    """Simulations of placelab's planner, for each problem."""

    def do(self) -> None:
        """Both plans of each row, and all of each scenario."""
        if self.data is not None:
            simulator = SailorSimulator.of(self.data)
            (self.folder / SAILOR).mkdir(exist_ok=True)
            for scenario in SCENARIOS:
                do_pieces(self._of_scenario(simulator, scenario))
        self._rows.mkdir(exist_ok=True)
        do_pieces({
            self._rows / PIECES / f"{row.name}-{placer.partition(':')[0]}.json": partial(self._answer, row, placer)
            for row in ROWS for placer in (row.plan, SHARDED, OURS)
        })  # fmt: skip

    def save(self, folder: Path) -> Path:
        """Write `published.md`."""
        done = {(each.row, each.placer): each for each in load_pieces(self._rows, Answer)}
        found = [
            Compared(row, theirs, ours, done.get((row.name, SHARDED))) for row in ROWS
            if (theirs := done.get((row.name, row.plan)))
            and (ours := done.get((row.name, OURS)) or done.get((row.name, SHARDED)))
        ]  # fmt: skip
        if not found:
            raise InputError(f"{self.folder}: no recommended plan is compared yet")
        of_sailor = results_of(SCENARIOS, load_pieces(self.folder / SAILOR, Judged))
        bars = {f"Llama {each.row.words}": each.ratio for each in found}
        bars |= {f"Sailor, {each.scenario.name}": each.by_sailor for each in of_sailor}
        return self.written(
            folder, (), painted=(partial(_bars, ratios=bars), 0.9 + 0.24 * len(bars)),
            command=self.command(data="FOLDER", budget=self.budget), budget=self.budget, runtime=self.runtime,
            asked=ASKED, found=found, rows=ROWS, mean=mean([each.ratio for each in found]), close=CLOSE, gibibyte=2**30,
            scenarios=SCENARIOS, of_sailor=of_sailor, by_sailor=mean([each.by_sailor for each in of_sailor]),
            unseen=mean([each.unseen for each in of_sailor]),
        )  # fmt: skip

    @property
    def _rows(self) -> Path:
        """The folder of pieces of recommended plans, by how they are run."""
        return self.folder / f"rows{self.suffix}"

    def _answer(self, row: Row, placer: str) -> Answer:
        problem = model_problem(row.model, row.cluster, f"{row.name}@H100", **self.timing)
        placed, spent = self._placed(problem, placer)
        step = placed.timeline
        return Answer(
            row.name, placer, step.step_seconds, float(step.peak_bytes.max()), step.fits, spent,
            float(problem.graph.weights.sum()) / 2, placed.result.notes,
        )  # fmt: skip

    def _of_scenario(self, simulator: SailorSimulator, scenario: Scenario) -> Mapping[Path, Callable[[], Judged]]:
        folder = self.folder / SAILOR / PIECES
        return {
            folder / f"{scenario.file}-{BEST}.json": partial(_best, simulator, scenario),
            folder / f"{scenario.file}-{OURS}.json": partial(self._ours, simulator, scenario),
        }

    def _ours(self, simulator: SailorSimulator, scenario: Scenario) -> Judged:
        """Of the planner's answers that which Sailor's simulator says is fastest, as of the rivals."""
        started, answers = time.process_time(), list[Judged]()
        asked = choices(simulator, scenario.gpus)[:ASKED]
        for choice in asked:
            problem = measured_problem(*workload(simulator, choice), **IDEAL)
            placed, _ = self._placed(problem, f"{OURS}:micro_batches={problem.graph.samples}")
            pipeline = pipeline_of(placed.plan, problem, choice)
            if pipeline is not None and placed.timeline.fits:
                seconds = simulator.seconds(pipeline), placed.timeline.step_seconds
                answers.append(Judged(scenario.name, OURS, pipeline.text, *seconds))
        best = min(answers, key=lambda each: each.sailor)
        by_engine = min(answers, key=lambda each: each.engine or math.inf).sailor
        spent = time.process_time() - started
        return msgspec.structs.replace(best, by_engine=by_engine, asked=len(asked), cpu_seconds=spent)

    def _placed(self, problem: Problem, placer: str) -> tuple[SimulatedPlan, float]:
        """A plan as it is simulated, and CPU seconds."""
        started = time.process_time()
        placed = SimulatedPlan.by(load_placer(placer), problem, budget=self.budget)
        return placed, time.process_time() - started


def _bars(figure: Figure, ratios: Mapping[str, float]) -> None:
    """Our step over theirs."""
    axes = figure.subplots()
    axes.barh(range(len(ratios)), [*ratios.values()], color=[ORANGE if each > 1 else BLUE for each in ratios.values()])
    axes.set_yticks(range(len(ratios)), [*ratios], fontsize=7)
    axes.invert_yaxis()
    axes.axvline(1.0, color="black", linewidth=0.6)
    axes.set_xlabel("our step over theirs")
    axes.grid(axis="x")


def _best(simulator: SailorSimulator, scenario: Scenario) -> Judged:
    started = time.process_time()
    pipeline = best_of_all(simulator, scenario.gpus)
    spent = time.process_time() - started
    engine = None  # replicas of mixed stages are not alike
    if all(len(stage.groups) == 1 for stage in pipeline.stages):
        problem = measured_problem(*workload(simulator, Choice.of(pipeline)), **IDEAL)
        engine = simulate(problem, plan_of(pipeline, problem)).step_seconds
    return Judged(scenario.name, BEST, pipeline.text, simulator.seconds(pipeline), engine, cpu_seconds=spent)


if __name__ == "__main__":
    run(Published)
