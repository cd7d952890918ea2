"""placelab: find, and learn to find, the devices on which a neural network's operations run fastest.

Every verb of the command line is a function of this module, with the same keywords:

    import placelab
    placed = placelab.place("rnnlm:layers=4,steps=10", cluster="p100x4", placer="annealing:policy=default", budget=500)
    print(placed.timeline.step_seconds, placed.plan.placement)

Graphs, clusters and placers are given as objects or as text: a file, or a spec such as `rnnlm:layers=4`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphs.errors import DoesNotFitError, InputError

if TYPE_CHECKING:
    from envs.cost_models import CostModel
    from envs.plan import Plan
    from evaluation.comparison import Comparison
    from evaluation.listing import Kind, Listing
    from evaluation.placed import Placed
    from evaluation.profiling import ProfileReport
    from evaluation.summary import GraphSummary
    from graphs.cluster import Cluster
    from graphs.op_graph import OpGraph
    from graphs.problem import Problem
    from placers import Placer

__all__ = [
    "DoesNotFitError", "InputError", "capture", "compare", "evaluate", "finetune", "list_names", "main", "place",
    "profile", "report", "show", "simulate", "train",
]  # fmt: skip


def list_names(what: Kind = "all") -> Listing:
    """List what exists by name: model families, clusters, placers, networks, cost models, training recipes.

    Args:
        what: the kind of thing to list.

    """
    from evaluation.listing import KINDS, Listing

    return Listing.of(list(KINDS) if what == "all" else [what])


def capture(model: str, *, out: Path | None = None, training: bool = True, groups: int | None = None) -> GraphSummary:
    """Capture a PyTorch model as an op graph, and save it.

    Args:
        model: `file.py:callable`, where the callable returns a module and its example inputs, or a family spec.
        out: the graph file to write, `*.graph.json` or `*.graph.json.gz`; without it only the summary is shown.
        training: capture a whole training step: forward, backward and update.
        groups: tie the ops into this many groups, each placed as one.

    """
    from evaluation.summary import GraphSummary
    from graphs.graph_file import save_graph
    from graphs.load import load_graph

    _check_writable(out)
    graph = load_graph(model, groups=groups, training=training)
    if out is not None:
        save_graph(graph, out)
    return GraphSummary.of(graph)


def profile(
    model: str,
    *,
    out: Path,
    repeats: int = 20,
    training: bool = True,
    device: str = "",
    efficiencies: Path | None = None,
) -> ProfileReport:
    """Run each distinct op of a model alone on this machine, and keep how long it takes.

    Ctrl-C stops and saves; the same command goes on from there, and another model extends the file.

    Args:
        model: `file.py:callable`, where the callable returns a module and its example inputs, or a family spec.
        out: the profile to write or extend, `*.profile.json` or `*.profile.json.gz`.
        repeats: how many samples to take of each op.
        training: run the ops of a whole training step: forward, backward and update.
        device: `cpu`, `cuda` or `cuda:1`; without it, the machine's card if it has one.
        efficiencies: a TOML file to write for `--cost-model roofline:efficiency=FILE`.

    """
    from evaluation.profiling import profile_model

    _check_writable(out, efficiencies)
    return profile_model(model, out, repeats=repeats, training=training, device=device, efficiencies=efficiencies)


def show(
    graph: str | OpGraph,
    *,
    groups: int | None = None,
    draw: Path | None = None,
    plan: Path | None = None,
    cluster: str | Cluster = "",
) -> GraphSummary:
    """Show what a graph holds: counts, totals, the longest chain, the largest tensors.

    Args:
        graph: a graph file, a family spec such as `rnnlm:layers=4`, or `file.py:callable`.
        groups: tie the ops into this many groups, each placed as one.
        draw: a drawing to write, coloured by module: `*.png`, `*.svg` or `*.html`.
        plan: a plan file, to colour the drawing by device; `groups` must be those that it was made for.
        cluster: the cluster of that plan.

    """
    from evaluation.summary import GraphSummary
    from graphs.load import load_graph

    _check_writable(draw)
    loaded = load_graph(graph, groups=groups)
    if draw is not None:
        from evaluation.graph_plots import save_drawing

        if plan is None:
            save_drawing(loaded, Path(draw))
        else:
            placed = simulate(loaded, plan, cluster=cluster, groups=None)
            names = [device.name for device in placed.problem.cluster.devices]
            save_drawing(loaded, Path(draw), placed.plan.placement, names)
    return GraphSummary.of(loaded)


def place(
    graph: str | OpGraph,
    *,
    cluster: str | Cluster = "",
    placer: str | Placer = "annealing:policy=default",
    budget: int = 1000,
    groups: int | None = 64,
    optimizer: str = "adam",
    cost_model: str | CostModel = "roofline",
    seed: int = 0,
    out: Path | None = None,
) -> Placed:
    """Find a device for every op of a graph.

    Args:
        graph: a graph file, a family spec such as `rnnlm:layers=4`, or `file.py:callable`.
        cluster: a cluster file, or a preset such as `p100:devices=4`, in short `p100x4`; without it, the devices
            that the graph's file lists, if it does, or `p100:devices=2`.
        placer: a placer's spec, such as `default`, `metis` or `default+finetuned`, or the run folder of a trained one;
            without it, the policy that comes with placelab, and a search from where that puts the ops.
        budget: how many placements the placer may simulate; with 0, what the policy says is the answer.
        groups: tie the ops into this many groups, each placed as one.
        optimizer: whose state occupies memory: sgd, momentum or adam; none if weights say what all of it takes.
        cost_model: what ops cost: `roofline`, `roofline:efficiency=typical`, `profiled:file=FILE`, `recorded`.
        seed: of everything random.
        out: the plan file to write, `*.plan.json`.

    """
    from envs.plan_file import save_plan
    from evaluation.placed import Placed
    from evaluation.trained import load_placer

    _check_writable(out)
    chosen = load_placer(placer) if isinstance(placer, str) else placer
    problem = _problem(graph, cluster, groups, optimizer, cost_model)
    placed = Placed.by(chosen, problem, seed=seed, budget=budget)
    if out is not None:
        save_plan(placed.plan, problem, placed.timeline, out)
    return placed


def simulate(
    graph: str | OpGraph,
    plan: str | Path | Plan,
    *,
    cluster: str | Cluster = "",
    groups: int | None = 64,
    optimizer: str = "adam",
    cost_model: str | CostModel = "roofline",
    trace: Path | None = None,
    gantt: Path | None = None,
) -> Placed:
    """Simulate one training step of a graph under a plan.

    Args:
        graph: a graph file, a family spec such as `rnnlm:layers=4`, or `file.py:callable`.
        plan: a plan file, as `place --out` writes it or edited by hand.
        cluster: a cluster file, or a preset such as `p100:devices=4`, in short `p100x4`; without it, the devices
            that the graph's file lists, if it does, or `p100:devices=2`.
        groups: the number of op groups that the plan was made for.
        optimizer: whose state occupies memory: sgd, momentum or adam; none if weights say what all of it takes.
        cost_model: what ops cost: `roofline`, `roofline:efficiency=typical`, `profiled:file=FILE`, `recorded`.
        trace: a file to write for ui.perfetto.dev: ops, transfers and memory over time, `*.json` or `*.json.gz`.
        gantt: a chart to write: `*.png`, `*.svg`, or `*.html` with the memory below it.

    """
    from envs.plan import Plan
    from envs.plan_file import load_plan
    from envs.trace import save_trace
    from evaluation.placed import Placed

    _check_writable(trace, gantt)
    problem = _problem(graph, cluster, groups, optimizer, cost_model)
    placed = Placed.of(problem, plan if isinstance(plan, Plan) else load_plan(Path(plan), problem))
    if trace is not None:
        save_trace(placed.timeline, Path(trace))
    if gantt is not None:
        from evaluation.timeline_plots import save_gantt

        save_gantt(placed.timeline, Path(gantt))
    return placed


def compare(
    graphs: Sequence[str | OpGraph] = (),
    *,
    suite: str = "",
    clusters: Sequence[str | Cluster] = (),
    placers: Sequence[str | Placer] = (),
    budget: int = 16,
    groups: int | None = 64,
    optimizer: str = "adam",
    cost_model: str | CostModel = "roofline",
    objective: str = "step-time",
    seeds: int = 1,
    workers: int = 1,
    journal: Path | None = None,
) -> Comparison:
    """Compare placers on every graph and cluster, at the same number of simulations.

    Args:
        graphs: graph files, family specs such as `rnnlm:layers=4`, or `file.py:callable`.
        suite: instead of graphs and clusters, the problems of a suite, or several with commas, such as `gdp12`,
            `placeto` or `heldout`; `placelab list suites` says what they are.
        clusters: cluster files, or presets such as `p100:devices=4`; without any, the devices that a graph's file
            lists, if it does, or `p100:devices=2`.
        placers: placers' specs, such as `default`, with commas between them or each after a flag of its own, or run
            folders of trained ones, with `+finetuned` after them to fine-tune; without any, all that need no training.
        budget: how many placements each placer may simulate on each problem.
        groups: tie the ops into this many groups, each placed as one.
        optimizer: whose state occupies memory: sgd, momentum or adam; none if weights say what all of it takes.
        cost_model: what ops cost: `roofline`, `roofline:efficiency=typical`, `profiled:file=FILE`, `recorded`.
        objective: what is to be made small, `step-time`, or `max-load`: the load of the busiest device when samples
            are pipelined, in milliseconds.
        seeds: how many seeds to run each placer with.
        workers: how many processes to share the work among.
        journal: a file that keeps each result as it comes; the same command goes on from there.

    """
    from evaluation.compare import compare as run
    from evaluation.evaluate import chosen_placers, classical_placers
    from graphs.suites import load_suite

    if bool(suite) == bool(graphs):
        raise InputError("compare needs graphs, or the name of a suite, and not both")
    chosen = chosen_placers(placers, classical_placers())
    pairs: list[tuple[str | OpGraph, str | Cluster]] = [
        *((problem.graph, problem.cluster) for problem in load_suite(suite, groups=None)),
        *((graph, cluster) for graph in graphs for cluster in clusters or ("",)),
    ]
    problems = [replace(_problem(g, c, groups, optimizer, cost_model), objective=objective) for g, c in pairs]
    return run(chosen, problems, budget=budget, seeds=range(seeds), workers=workers, journal=journal)


def train(recipe: str = "gdp", *, out: Path | None = None, seed: int = 0, resume: bool = False) -> Placer:
    """Train a placement policy on graph families, into a run folder.

    Ctrl-C stops after the current update and saves; `--resume` goes on from there.

    Args:
        recipe: a recipe by name, or a TOML file.
        out: the run folder; without it, `runs/RECIPE-seedN`.
        seed: of everything random.
        resume: go on with the run in the folder.

    """
    from training.train import train as run

    folder = out or Path("runs") / f"{Path(recipe).stem}-seed{seed}"
    command = shlex.join(["placelab", "train", recipe, "--out", str(folder), "--seed", str(seed)])
    return run(recipe, out=folder, seed=seed, resume=resume, command=command)


def evaluate(
    policy: str | Path = "default",
    *,
    suite: str = "",
    placers: Sequence[str | Placer] = (),
    budget: int = 16,
    seeds: int = 3,
    workers: int = 1,
    groups: int | None = None,
    journal: Path | None = None,
) -> Comparison:
    """Compare a trained policy, zero-shot on graphs that it never saw, with every placer that needs no training.

    The evaluation of a run on its own test split is kept in the run folder, as `evaluation.json`.

    Args:
        policy: the run folder that `train` wrote, or `default`: the policy that comes with placelab.
        suite: the problems of a suite, or of several with commas, such as `heldout`, `newfamilies` or `clusters`;
            without it, the test split of the policy's recipe.
        placers: the rivals, as `compare` takes them; without any, all that need no training.
        budget: how many placements each placer may simulate on each problem.
        seeds: how many seeds to run each placer with.
        workers: how many processes to share the work among.
        groups: tie the ops into this many groups, each placed as one; without it, as many as the policy's recipe says.
        journal: a file that keeps each result as it comes; the same command goes on from there.

    """
    from evaluation.evaluate import evaluate as run

    return run(policy, placers, suite, groups, budget=budget, seeds=seeds, workers=workers, journal=journal)


def finetune(
    run: Path,
    graph: str,
    *,
    cluster: str = "p100:devices=4",
    simulations: int = 1000,
    groups: int | None = 64,
    optimizer: str = "adam",
    seed: int = 0,
) -> Comparison:
    """Fine-tune a trained policy on one problem, beside every placer at the same number of simulations.

    Writes the tuned policy to `finetune/` in the run folder, and its best plan to `best.plan.json`.

    Args:
        run: the run folder that `train` wrote.
        graph: a graph file, a family spec such as `rnnlm:layers=4`, or `file.py:callable`.
        cluster: a cluster file, or a preset such as `p100:devices=4`.
        simulations: how many placements may be simulated.
        groups: tie the ops into this many groups, each placed as one; as in training is best.
        optimizer: whose state occupies memory: sgd, momentum or adam; none if weights say what all of it takes.
        seed: of everything random.

    """
    from evaluation.evaluate import finetune as finetune_run

    return finetune_run(
        Path(run), graph, cluster, groups=groups, optimizer=optimizer, simulations=simulations, seed=seed
    )


def report(run: Path) -> Path:
    """Write a run's report: one HTML file with curves, tables, and the best plan drawn.

    Args:
        run: the run folder that `train` wrote.

    """
    from evaluation.report import write_report

    return write_report(Path(run))


def _check_writable(*files: Path | None) -> None:
    """Before the work that its loss would waste."""
    for out in files:
        if out is not None and not Path(out).parent.is_dir():
            raise InputError(f"cannot write {out}: the folder {Path(out).parent} does not exist")


def _problem(
    graph: str | OpGraph, cluster: str | Cluster, groups: int | None, optimizer: str, cost_model: str | CostModel
) -> Problem:
    from envs.cost_models import load_cost_model
    from graphs.load import load_cluster, load_graph, problem_in_file
    from graphs.problem import Problem

    if not cluster and isinstance(graph, str) and (given := problem_in_file(graph)):
        return given
    problem = Problem(load_graph(graph, groups=groups), load_cluster(cluster or "p100:devices=2"), optimizer)
    return replace(problem, op_seconds=load_cost_model(cost_model).costs(problem).op_seconds)


VERBS: dict[str, Callable[..., object]] = {
    "list": list_names, "capture": capture, "profile": profile, "show": show, "simulate": simulate, "place": place,
    "compare": compare, "train": train, "evaluate": evaluate, "finetune": finetune, "report": report,
}  # fmt: skip


def main() -> None:
    """Run the command line."""
    from evaluation.command_line import run

    run(VERBS, "Find, and learn to find, the devices on which a neural network's operations run fastest.")


if __name__ == "__main__":
    main()
