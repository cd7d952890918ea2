"""The verbs about one graph: capture, profile, show, place, fits and simulate.

They import what they run when they are called, so that `placelab --help` need not wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.commands.arguments import AUTO, PLACERS, of_problem, tied_into
from evaluation.commands.charts import PLAN, check_charts, draw_steps, names_of
from evaluation.commands.switches import CACHE, CODE, switched
from evaluation.commands.verb_signatures import checked
from graphs.foundation.errors import InputError
from graphs.foundation.files import check_writable

# Imported late, in each verb: what a verb needs takes up to seconds to import, and --help must not wait for it.
if TYPE_CHECKING:
    from typing import Unpack

    from evaluation.commands.arguments import (
        ClusterLike,
        GraphLike,
        Groups,
        PathLike,
        PlacerLike,
        PlanChoice,
        PlanLike,
        PlanOptions,
    )
    from evaluation.comparing.memory_needs import MemoryNeeds
    from evaluation.comparing.simulated_plan import SimulatedPlan
    from evaluation.reporting.profile_report import ProfileReport
    from evaluation.tables.graph_summary import GraphSummary

# what the names of files end in
PLANS, TRACES = (PLAN,), (".json", ".json.gz")


@switched(CACHE)
@checked
def capture(
    model: GraphLike,
    *,
    out: PathLike | None = None,
    training: bool = True,
    batch: int | None = None,
    precision: str = AUTO,
    freeze: int = 0,
    groups: Groups = None,
) -> GraphSummary:
    """Capture a PyTorch model as an op graph, and save it.

    Args:
        model: a family spec, or `file.py:callable`, where the callable returns (module, example inputs), with keyword
            inputs as a dict, or (module, inputs, keyword inputs); its knobs come after it, `file.py:callable:layers=3`.
        out: the graph file to write, `*.graph.json` or `*.graph.json.gz`; without it only the summary is shown.
        training: capture a whole training step: forward, backward and update.
        batch: samples of a step, in place of the model's own. The file then says what of each op does not grow with
            them, for which the model is captured a second time.
        precision: that of training, as `place` takes it.
        freeze: the first layers, with the embedding, that are not trained: they run forward only.
        groups: tie the ops into this many groups, each placed as one.

    """
    from evaluation.tables.graph_summary import GraphSummary
    from graphs.descriptions.another_batch import with_batch
    from graphs.files.graph_source import graph_source
    from graphs.files.load import load_graph
    from graphs.formats.graph_file import ENDINGS, save_graph
    from graphs.transforms.freezing import freeze_layers

    check_writable(out, endings=ENDINGS, inputs=[model])
    if freeze and not training:
        raise InputError(f"`freeze={freeze}` is about training; leave out `training=False`, or `freeze`")
    source = graph_source(model).in_precision(precision)
    graph = load_graph(source, groups=tied_into(groups), training=training, with_law=batch is not None)
    graph = freeze_layers(graph if batch is None else with_batch(graph, batch), freeze)
    if out is not None:
        save_graph(graph, Path(out))
    return GraphSummary.of(graph)


@checked
def profile(
    model: str,
    *,
    out: PathLike,
    repeats: int = 20,
    training: bool = True,
    device: str = "",
    threads: int | None = None,
    in_step: bool = False,
    efficiencies: PathLike | None = None,
) -> ProfileReport:
    """Run each distinct op of a model on this machine, alone or in whole steps, and keep how long it takes.

    On a GPU the model is trained for some steps as well, to see what the host takes to issue its ops.
    Ctrl-C stops and saves; the same command resumes from there, and another model extends the file.

    Args:
        model: `file.py:callable` or a family spec, as `capture` takes them.
        out: the profile to write or extend, `*.profile.json` or `*.profile.json.gz`.
        repeats: how many samples to take of each op, or how many steps to run.
        training: run the ops of a whole training step: forward, backward and update.
        device: `cpu`, `cuda` or `cuda:1`; without it, the machine's GPU if it has one.
        threads: with how many threads a processor computes: 1 for plans that `run` runs, whose processes have one each;
            without it, as many as PyTorch takes.
        in_step: train the whole model op by op, as `run` does with one thread, and time its ops there: caches then hold
            what they hold in a step, and not what an op that is run alone left there. The model must fit on the device.
        efficiencies: a TOML file to write for `--cost-model roofline:efficiency=FILE`.

    """
    from envs.costs.efficiency_file import check_ending
    from envs.costs.profiling import profile as profiled
    from envs.costs.timing import torch_device, torch_threads
    from envs.running.measuring.profiled_host import profile_host
    from evaluation.reporting.profile_report import ProfileReport
    from graphs.capture.op_calls import load_calls

    check_writable(out, efficiencies, inputs=[model])
    if efficiencies is not None:
        check_ending(Path(efficiencies))
    if in_step and (not training or threads not in (None, 1)):
        raise InputError(
            "`in_step=True` runs whole training steps with one thread: leave out `training=False` and `threads`"
        )
    captured = load_calls(model, training=training)
    if in_step:
        from envs.running.measuring.profiled_step import profile_steps

        measured = profile_steps(model, captured, Path(out), steps=repeats, device=str(torch_device(device)))
    else:
        with torch_threads(threads):
            measured = profiled(captured, Path(out), repeats=repeats, device=device)
    measured = profile_host(measured, model, captured.graph, torch_device(device), Path(out), repeats)
    found = ProfileReport.of(measured, captured.graph)
    if efficiencies is not None:
        found.save_efficiencies(Path(efficiencies))
    return found


@switched(CACHE, CODE)
@checked
def show(
    graph: GraphLike,
    *,
    groups: Groups = None,
    draw: PathLike | None = None,
    plan: PlanLike | None = None,
    cluster: ClusterLike = "",
) -> GraphSummary:
    """Show what a graph holds: counts, totals, the longest chain, the largest tensors.

    Args:
        graph: a graph file, a family spec such as `rnnlm:layers=4`, or `file.py:callable`.
        groups: tie the ops into this many groups, each placed as one.
        draw: a drawing to write, coloured by module: `*.png`, `*.svg`, or `*.html` to open modules in and to search.
        plan: a plan file, to colour the drawing by device, or in a page by time.
        cluster: the cluster of that plan.

    """
    from evaluation.commands.given_plans import as_made, read_given
    from evaluation.tables.graph_summary import GraphSummary
    from graphs.files.graph_source import graph_source
    from graphs.files.load import load_graph

    check_charts(draw, inputs=[graph, plan, cluster])
    if draw is None and (plan is not None or cluster):
        raise InputError("a plan and its cluster colour a drawing; name the drawing, too, with `draw=FILE`")
    precision = as_made({}, None if plan is None else read_given(plan)).get("precision", AUTO)
    loaded = load_graph(graph_source(graph).in_precision(precision), groups=tied_into(groups))
    if draw is not None:
        from envs.costs.costs import costs_of
        from evaluation.drawing.graph_plots import save_drawing  # with matplotlib and Bokeh, a second to import

        if plan is None:
            save_drawing(loaded, Path(draw))
        else:
            placed = simulate(loaded, plan, cluster=cluster, groups=None)
            names = [device.name for device in placed.problem.cluster.devices]
            devices = ["+".join(names[one] for one in several) for several in placed.plan.devices]
            firsts = [several[0] for several in placed.plan.devices]
            seconds = costs_of(placed.problem).op_seconds[range(len(loaded)), firsts]
            save_drawing(loaded, Path(draw), devices, seconds)
    return GraphSummary.of(loaded)


@switched(CACHE, CODE)
@checked
def place(
    graph: GraphLike,
    *,
    cluster: ClusterLike = "",
    placer: PlacerLike | None = None,
    plans: PlanChoice = "all",
    budget: int = 1000,
    objective: str = "step-time",
    robust: bool = False,
    seed: int = 0,
    out: PathLike | None = None,
    **options: Unpack[PlanOptions],
) -> SimulatedPlan:
    """Find the fastest plan for a graph, of whatever kind: replicas, shards, pipelines, divided ops, a device per op.

    Args:
        graph: a graph file, a family spec such as `rnnlm:layers=4`, or `file.py:callable`.
        cluster: a cluster file, or a preset such as `p100:devices=4`, in short `p100x4`; without it, the devices
            that the graph's file lists, if it does, or `p100:devices=2`.
        placer: a placer's spec, such as `metis` (`placelab list placers`), a trained one's folder, or `file.py:build`.
        plans: without a placer, the fastest of `all` kinds, by the placer `planner`; of those that `placelab run` runs,
            `run`; or a `placement`, a device for each op, for `parallelize`, searched from the trained policy's.
        budget: how many plans the placer may simulate, 0 for a policy's own; the planner as many placements, too.
        groups: tie the ops into this many groups, each placed as one; `none` places every op by itself, `modules` those
            of each module together, as exports need. 256 unless given, and none for a workload on its own devices.
        optimizer: whose state occupies memory: sgd, momentum, adam or adam8bit; none if weights include all of it.
        precision: that of training: `bf16`, `bf16-mixed`, `fp16`, `tf32` and others; the model's own unless given.
        batch: samples of a step, to which measured times are in proportion; a file that says none is `FILE:batch=32`.
        training: plan a whole training step: forward, backward and update; without it, a forward pass.
        micro_batches: equal parts of the batch for a placer that plans such: `--placer gpipe:micro_batches=8`.
        cost_model: what ops cost: `roofline`, `profiled:file=FILE`, `recorded` ...; unless given, measured times where
            the graph has them and no FLOPs, and else `roofline:efficiency=measured`, or without GPUs `roofline`.
        runtime: how plans are run: on GPUs `parallelize`, unless given; `run`, `ideal`, or with knobs `run:host=30us`.
        order: in place of the runtime's, which of the ops that are ready a device runs first: `longest_path`,
            `program`, which is PyTorch's own order, `fifo`, or `file.py:build`; placers may say it for each op.
        host: in place of the runtime's, what it costs to issue ops: `eager`, `megatron`, `compiled`, `30us`, or `none`.
        reserve: memory of each GPU that tensors cannot have: `none`, `1.5GiB`, `8%`, `1.5GiB+8%`, or `cuda`, as usual.
        objective: what to minimise: `step-time`; `throughput`, samples per second; `latency`, of one forward pass;
            `flow`, of requests that follow one another; `max-load`, of the busiest device; `replacement:plan=RUNNING`.
        robust: report also what the plan takes under small noise of op and transfer times, and without contention.
        seed: of everything random.
        out: the plan file to write, `*.plan.json`.

    """
    from evaluation.commands.load_placer import divides_batch, load_placer, with_micro_batches
    from evaluation.commands.problems import asked_problems
    from evaluation.comparing.simulated_plan import SimulatedPlan

    check_writable(out, endings=PLANS, inputs=[graph, cluster])
    asked = asked_problems([graph], [cluster] if cluster else [], objective=objective, **of_problem(options))
    if placer is not None and plans != "all":
        raise InputError(f"`plans={plans!r}` is about plans without a placer; leave it out, or leave out the placer")
    given = PLACERS[plans].format(budget=budget) if placer is None else placer
    chosen = load_placer(*with_micro_batches([given], options["micro_batches"]))
    (problem,) = asked(divides_batch([chosen]))
    placed = SimulatedPlan.by(chosen, problem, seed=seed, budget=budget)
    if out is not None:
        placed.save(Path(out))
    placed = placed.with_commands(graph, cluster, out, options["batch"])
    return placed.with_robustness() if robust else placed


@switched(CACHE, CODE)
@checked
def fits(
    graph: GraphLike,
    *,
    cluster: ClusterLike = "",
    placers: Sequence[PlacerLike] = (),
    budget: int = 16,
    seed: int = 0,
    **options: Unpack[PlanOptions],
) -> MemoryNeeds:
    """Show what memory each kind of plan takes on each device, what for, and whether it fits.

    The plans are those that engineers choose from: one device, data parallelism with and without accumulated
    gradients, GPipe and 1F1B with and without recomputation, and the human expert's placement. Each is simulated.

    Args:
        graph: a graph file, a family spec such as `rnnlm:layers=4`, or `file.py:callable`.
        cluster: a cluster file or a preset, as `place` takes it.
        placers: placers' specs, with commas between them, whose plans are shown in addition.
        budget: how many plans each placer may simulate.
        seed: of everything random.
        groups: tie the ops into this many groups, as `place` takes it.
        optimizer: whose state occupies memory, as `place` takes it.
        precision: that of training, as `place` takes it.
        batch: samples of a step, as `place` takes it.
        training: of a whole training step; without it, of a forward pass.
        micro_batches: equal parts of the batch, for all plans that have such.
        cost_model: what ops cost, as `place` takes it.
        runtime: how plans are run, as `place` takes it.
        order: in which order devices run what is ready, as `place` takes it.
        host: what it costs to issue ops, as `place` takes it.
        reserve: memory that tensors cannot have, as `place` takes it.

    """
    from evaluation.commands.load_placer import load_placer, with_micro_batches
    from evaluation.commands.problems import asked_problems
    from evaluation.comparing.memory_needs import MemoryNeeds
    from evaluation.tables.plan_memory import usual_plans

    asked = asked_problems([graph], [cluster] if cluster else [], **of_problem(options))
    own = [(str(getattr(placer, "name", placer)), load_placer(placer)) for placer in placers]
    (problem,) = asked(True)
    kinds, specs = zip(*usual_plans(problem), strict=True)
    built = map(load_placer, with_micro_batches(specs, options["micro_batches"]))
    return MemoryNeeds.of(problem, [*zip(kinds, built, strict=True), *own], budget=budget, seed=seed)


@switched(CACHE, CODE)
@checked
def simulate(
    graph: GraphLike,
    plan: PlanLike,
    *,
    cluster: ClusterLike = "",
    objective: str = "step-time",
    robust: bool = False,
    trace: PathLike | None = None,
    gantt: PathLike | None = None,
    against: PlanLike | None = None,
    splits: PathLike | None = None,
    **options: Unpack[PlanOptions],
) -> SimulatedPlan:
    """Simulate one training step of a graph under a plan.

    Args:
        graph: a graph file, a family spec such as `rnnlm:layers=4`, or `file.py:callable`.
        plan: a plan file, as `place --out` writes it or edited by hand.
        cluster: a cluster file or a preset, as `place` takes it.
        groups: the number of op groups that the plan was made for, which only plan files before version 4 need.
        optimizer: whose state occupies memory, as `place` takes it.
        precision: that of training, as `place` takes it; without it, what the plan was made for. So are optimizer, cost
            model, runtime and reserve.
        batch: samples of a step, as `place` takes it; the plan may be one for another batch of the same model.
        training: the plan is for a training step; without it, for a forward pass.
        micro_batches: equal parts of the batch that follow one another, in place of those of the plan.
        cost_model: what ops cost, as `place` takes it.
        runtime: how the plan is run, as `place` takes it; of another than it was made for, both times are shown.
        order: the rule to simulate the plan under; without it, the plan's own, and the runtime's if it has none.
        host: what it costs to issue ops, as `place` takes it.
        reserve: memory that tensors cannot have, as `place` takes it.
        objective: what to report in addition to the step time, as `place` takes it, of plans in stages, too.
        robust: report noise and contention, as `place` does.
        trace: a file to write for ui.perfetto.dev: ops, transfers and memory over time, `*.json` or `*.json.gz`.
        gantt: a chart to write: `*.png`, `*.svg`, or `*.html` to zoom into and to ask, with memory on the same axis.
        against: a second plan, run likewise, for the chart, too; its step time is printed, also as it was made for.
        splits: a chart to write of what the plan divides each weight and activation by: `*.png`, `*.svg` or `*.html`.

    """
    from envs.files.trace import save_trace
    from evaluation.commands.given_plans import options_for, read_given, simulated

    check_writable(trace, endings=TRACES, inputs=[graph, plan, cluster])
    check_charts(gantt, splits, inputs=[graph, plan, cluster, against])
    plans = [plan] if against is None else [plan, against]
    saved = [read_given(each) for each in plans]  # refused here if one is damaged, before a model is captured
    options = options_for(saved, options)
    placed, *others = [simulated(graph, each, cluster, objective, options) for each in saved]
    if trace is not None:
        save_trace(placed.timeline, Path(trace))
    if gantt is not None:
        draw_steps(names_of(plans), [placed, *others], Path(gantt))
    if others:
        placed = placed.against(others[0], names_of(plans)[1])
    if splits is not None:
        from evaluation.drawing.split_plots import save_split_chart  # likewise
        from evaluation.tables.split_rows import split_rows

        save_split_chart(split_rows(placed.problem, placed.plan), Path(splits))
    return placed.with_robustness() if robust else placed
