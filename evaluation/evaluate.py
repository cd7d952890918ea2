"""Evaluate a trained policy: zero-shot on graphs that it never saw, and fine-tuned on one, beside the baselines."""

from __future__ import annotations

import json
from pathlib import Path

from envs.plan_file import save_plan
from evaluation.compare import compare
from evaluation.comparison import Comparison, short_name
from evaluation.placed import Placed
from evaluation.problem_file import ProblemFile, save_problem
from evaluation.record import EvaluationFile, Notes, save_evaluation
from evaluation.trained import trained
from graphs import by_name
from graphs.errors import InputError
from graphs.load import load_cluster, load_graph
from graphs.problem import Problem
from placers.policies.policy_file import load_meta, save_policy
from training.finetune import FineTuned, FineTuner
from training.problems import load_problems
from training.recipe import load_recipe
from training.train import Learned

AS_IN_PAPERS = "metis:default=true"  # the METIS that papers compare with, beside ours, which is tuned


def classical_placers() -> list[str]:
    """Every placer that needs no training, and is quick enough for any graph."""
    left_out = {"LEARNED", "BY_REQUEST"}
    return [name for name in by_name.names("placers") if not left_out & set(by_name.constants("placers", name))]


def evaluate(run: Path, *, budget: int = 16, seeds: int = 3) -> Comparison:
    """Compare the policy of a run, zero-shot, with every classical placer on the test split of its recipe.

    All placers may simulate `budget` placements per problem; the policy also answers without any (`samples=1`).
    Writes `evaluation.json` into the run folder. Raises InputError if the folder holds no run.
    """
    learned, greedy = trained(run), trained(run, samples=1)
    problems = load_problems(load_recipe(str(run / "config.toml")).problems, "test")
    comparison = compare(
        [learned, greedy, *classical_placers(), AS_IN_PAPERS], problems, budget=budget, seeds=range(seeds)
    )
    notes = Notes(
        learned=learned.name,
        remarks=(
            f"Every placer may simulate {budget} placements of a problem and answers with the best of them; "
            f"{short_name(greedy.name)} is the policy's most likely placement, not simulated at all.",
            "Placers decide per op group; step times are simulated op by op.",
        ),
    )
    save_evaluation(EvaluationFile(notes=notes, records=comparison.records), run / "evaluation.json")
    return comparison


def finetune(
    run: Path, graph: str, cluster: str, *, groups: int | None, optimizer: str, simulations: int, seed: int
) -> Comparison:
    """Fine-tune the policy of a run on one problem, and compare with every placer at the same number of simulations.

    Writes `finetune/` into the run folder, and its best plan as `best.plan.json` with the problem.
    """
    start, greedy = trained(run), trained(run, samples=1)
    if not isinstance(start, Learned):
        raise InputError(f"{run}: a policy of {start.name.partition(':')[0]!r} cannot be fine-tuned yet")
    problem = Problem(load_graph(graph, groups=groups), load_cluster(cluster), optimizer)
    results: list[FineTuned] = []
    tuner = FineTuner(start, on_tuned=results.append)
    comparison = compare([tuner, start, greedy, *classical_placers()], [problem], budget=simulations, seeds=(seed,))
    tuned = results[0]
    folder = run / "finetune"
    folder.mkdir(exist_ok=True)
    lines = [json.dumps({"simulations": count, "best_seconds": seconds}) for count, seconds in tuned.history]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    notes = Notes(learned=tuner.name, before=greedy.name)
    save_evaluation(EvaluationFile(notes=notes, records=comparison.records), folder / "evaluation.json")
    placed = Placed.of(problem, tuned.plan)
    save_plan(placed.plan, problem, placed.timeline, run / "best.plan.json")
    spec = ProblemFile(graph=graph, groups=groups, cluster=cluster, optimizer=optimizer)
    save_problem(spec, run / "best.problem.json")
    save_policy(folder, tuned.policy.state_dict(), load_meta(run))
    return comparison
