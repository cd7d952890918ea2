"""Published plans beside the planner's: those of public planners, NVIDIA's, and the best that Sailor's rivals can say.

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

import msgspec
from matplotlib.figure import Figure

from envs.simulation.simulator import simulate
from evaluation.commands.arguments import PLACERS
from evaluation.commands.load_placer import load_placer
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.drawing.figures import BLUE, ORANGE
from evaluation.studies.pieces import PIECES, do_pieces, load_pieces, placelab_version, within
from evaluation.studies.problems import ConditionOptions, measured_problem, model_problem
from evaluation.studies.published.findings import (
    BEST,
    CLOSE,
    OURS,
    SHARDED,
    Answer,
    JobAnswer,
    Judged,
    compared,
    job_rows,
    mean,
    results_of,
    versions,
)
from evaluation.studies.published.jobs import JOBS
from evaluation.studies.published.public_planner import Job
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
LIMIT, RIVALS_LIMIT = 600.0, 300.0  # seconds of the processor, for an answer of a row, and for Sailor's rivals
DEFAULT_BUDGET = 1000  # of `place`
ASKED = 16  # questions to the planner for each scenario: those that promise most


@dataclass(frozen=True, kw_only=True)
class Published(Simulated):
    """Plan the jobs of public planners, what NVIDIA recommends plans for, and Sailor's scenarios, and compare."""

    name = "published"
    runtime: str = RUNTIME
    precision: str = "bf16"
    data: Path | None = None
    """The folder with Sailor's layers and links; without it, its scenarios are left out."""
    budget: int = 60
    """Simulations of placelab's planner, for each problem."""

    def do(self) -> None:
        """All answers of each job and row, and all of each scenario."""
        simulator = SailorSimulator.of(self.data) if self.data else None
        for folder in (self._jobs, self._scenarios, self._rows):
            folder.mkdir(exist_ok=True)
        if not self.suffix:  # jobs say how they are run
            do_pieces({self._jobs / PIECES / f"{job.name}.json": partial(_of_job, job) for job in JOBS})
        if simulator:
            for scenario in SCENARIOS:
                do_pieces(self._of_scenario(simulator, scenario))
        do_pieces({
            self._rows / PIECES / f"{row.name}-{placer.partition(':')[0]}.json": partial(self._answer, row, placer)
            for row in ROWS for placer in (row.plan, SHARDED, OURS)
        })  # fmt: skip

    def save(self, folder: Path) -> Path:
        """Write `published.md`."""
        answers, judged = load_pieces(self._rows, Answer), load_pieces(self._scenarios, Judged)
        answered = [] if self.suffix else load_pieces(self._jobs, JobAnswer)
        jobs, found, of_sailor = job_rows(JOBS, answered), compared(ROWS, answers), results_of(SCENARIOS, judged)
        every: list[JobAnswer | Answer | Judged] = [*answered, *answers, *judged]
        if not (jobs or found):
            raise InputError(f"{self.folder}: no published plan is compared yet; leave out --write-only")
        ended = [each for each in of_sailor if each.is_compared]
        left = [job.words for job in JOBS if job.name not in {each.job for each in answered}]
        bars = {f"{each.theirs.whose}, {each.job.words}": each.ratio for each in jobs if each.ratio}
        bars |= {f"Llama {each.row.words}": each.ratio for each in found}
        bars |= {f"Sailor, {each.scenario.name}": each.by_sailor for each in ended}
        return self.written(
            folder, (), painted=(partial(_bars, ratios=bars), 0.9 + 0.24 * len(bars)),
            command=self.command(data="FOLDER", budget=self.budget), budget=self.budget, runtime=self.runtime,
            asked=ASKED, jobs=jobs, unanswered=left, most=DEFAULT_BUDGET, found=found, rows=ROWS, close=CLOSE,
            mean=mean([each.ratio for each in found]), scenarios=SCENARIOS, of_sailor=of_sailor, ended=ended,
            gibibyte=2**30, limits=(LIMIT, RIVALS_LIMIT), by_sailor=mean([each.by_sailor for each in ended]),
            unseen=mean([each.unseen for each in ended]), versions=versions(every),
            minutes=sum(each.cpu_seconds for each in every) / 60,
        )  # fmt: skip

    @property
    def _jobs(self) -> Path:
        return self.folder / "jobs"

    @property
    def _scenarios(self) -> Path:
        return self.folder / "sailor"

    @property
    def _rows(self) -> Path:
        """The folder of pieces of recommended plans, by how they are run."""
        return self.folder / f"rows{self.suffix}"

    def _answer(self, row: Row, placer: str) -> Answer:
        def made() -> Answer:
            problem = model_problem(row.model, row.cluster, f"{row.name}@H100", **self.timing)
            placed, spent = _placed(problem, placer, self.budget)
            step = placed.timeline
            return Answer(
                row.name, placer, step.step_seconds, float(step.peak_bytes.max()), step.fits, spent,
                float(problem.graph.weights.sum()) / 2, placed.result.notes, made=placelab_version(),
            )  # fmt: skip

        unfinished = Answer(row.name, placer, 0.0, 0.0, False, LIMIT, ended=False, made=placelab_version())
        return within(LIMIT, made) or unfinished

    def _of_scenario(self, simulator: SailorSimulator, scenario: Scenario) -> Mapping[Path, Callable[[], Judged]]:
        folder = self._scenarios / PIECES
        return {
            folder / f"{scenario.file}-{BEST}.json": partial(_best, simulator, scenario),
            folder / f"{scenario.file}-{OURS}.json": partial(self._ours, simulator, scenario),
        }

    def _ours(self, simulator: SailorSimulator, scenario: Scenario) -> Judged:
        """Of the planner's answers that which Sailor's simulator says is fastest, as of the rivals."""
        started, answers = time.process_time(), list[tuple[Judged, float]]()
        asked = choices(simulator, scenario.gpus)[:ASKED]
        for choice in asked:
            problem = measured_problem(*workload(simulator, choice), **IDEAL)
            placed, _ = _placed(problem, f"{OURS}:micro_batches={problem.graph.samples}", self.budget)
            pipeline = pipeline_of(placed.plan, problem, choice)
            if pipeline is not None and placed.timeline.fits:
                seconds = simulator.seconds(pipeline), placed.timeline.step_seconds
                judged = Judged(scenario.name, OURS, pipeline.text, *seconds)
                answers.append((judged, simulator.seconds(pipeline, sends=False)))
        best, _ = min(answers, key=lambda each: each[0].sailor)
        chosen, unsent = min(answers, key=lambda each: each[0].engine or math.inf)
        spent = time.process_time() - started
        return msgspec.structs.replace(
            best, by_engine=chosen.sailor, chosen=chosen.text, unsent=unsent, asked=len(asked), cpu_seconds=spent,
            made=placelab_version(),
        )  # fmt: skip


def _placed(problem: Problem, placer: str, budget: int) -> tuple[SimulatedPlan, float]:
    """A plan as it is simulated, and CPU seconds."""
    started = time.process_time()
    placed = SimulatedPlan.by(load_placer(placer), problem, budget=budget)
    return placed, time.process_time() - started


def _of_job(job: Job) -> JobAnswer:
    """As `place --plans all` answers without further flags."""
    problem = job.problem()
    placed, spent = _placed(problem, PLACERS["all"].format(budget=DEFAULT_BUDGET), DEFAULT_BUDGET)
    theirs = tuple(job.judge(*each.placed(problem)) if each.placed else None for each in job.theirs)
    seconds, fits = job.judge(problem, placed.plan)
    return JobAnswer(job.name, seconds, fits, theirs, spent, placed.result.notes, made=placelab_version())


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
    started, unfinished = time.process_time(), Judged(scenario.name, BEST, "", 0.0, None, ended=False)
    found = within(RIVALS_LIMIT, lambda: [best_of_all(simulator, scenario.gpus)])
    spent = time.process_time() - started
    if found is None:
        return msgspec.structs.replace(unfinished, cpu_seconds=spent, made=placelab_version())
    (pipeline,) = found
    engine = None  # replicas of mixed stages are not alike
    if all(len(stage.groups) == 1 for stage in pipeline.stages):
        problem = measured_problem(*workload(simulator, Choice.of(pipeline)), **IDEAL)
        engine = simulate(problem, plan_of(pipeline, problem)).step_seconds
    seconds = simulator.seconds(pipeline)
    return Judged(
        scenario.name, BEST, pipeline.text, seconds, engine, cpu_seconds=spent, made=placelab_version()
    )  # fmt: skip


if __name__ == "__main__":
    run(Published)
