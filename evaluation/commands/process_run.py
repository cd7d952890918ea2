"""The verb that runs a plan in processes, one per device, and shows what was predicted next to what was measured."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from evaluation.commands.arguments import AUTO
from evaluation.commands.charts import check_charts
from evaluation.commands.graph_verbs import TRACES, simulate
from evaluation.commands.switches import CACHE, CODE, switched
from evaluation.commands.verb_signatures import checked
from graphs.foundation.errors import InputError
from graphs.foundation.files import check_readable, check_writable
from graphs.foundation.progress import waiting

# Imported late, in the verb, as those of graph_verbs.
if TYPE_CHECKING:
    from typing import Unpack

    from torch.nn import Module

    from envs.running.processes import Workers
    from envs.running.training_job import Training
    from evaluation.commands.arguments import ClusterLike, GraphLike, PathLike, PlanLike, ProblemOptions, RunOptions
    from evaluation.comparing.simulated_plan import SimulatedPlan
    from evaluation.measuring.looped_plan import LoopedPlan
    from evaluation.measuring.measured_plan import MeasuredPlan


@switched(CACHE, CODE)
@checked
def run(
    model: GraphLike,
    plan: PlanLike,
    *,
    cluster: ClusterLike = "",
    devices: Sequence[str] = (),
    steps: int = 10,
    check: bool = True,
    in_one_process: bool = False,
    out: PathLike | None = None,
    **options: Unpack[RunOptions],
) -> MeasuredPlan | LoopedPlan:
    """Train a model for some steps as a plan says, in a process per device, and compare with what was predicted.

    On CPUs the processes use gloo, each on a core of its own if there are enough, and on GPUs NCCL. They are started
    here, or by torchrun, on one server or several: each rank is then a device of the cluster. The optimizer is Adam. A
    model that returns one number returns its loss; of others the loss is the sum of all outputs. The first two steps do
    not count for the step time.

    Args:
        model: `file.py:callable` or a family spec: each process makes the model itself, with the same weights.
        plan: a plan file, as `place --out` writes it or edited by hand.
        cluster: a cluster file or a preset, as `place` takes it.
        devices: what PyTorch is to use for each device of the cluster, with commas between them: `cpu,cpu` or
            `cuda:0,cuda:1`; without it GPUs, if there are as many, and CPUs otherwise.
        steps: how many steps to train.
        check: make the first step without the plan as well, on the first device, and show how far its loss, gradients,
            weights and buffers are from those of the plan.
        in_one_process: run an op placement as `placelab.parallelize` does in a loop, on any `devices`, such as
            `cuda:0,cpu`, or by the runtime `replay`; that loop is predicted, and single ops are not measured.
        out: a new folder for what was run: the command, settings, versions, seed, metrics, the plan and both steps.
        groups: the number of op groups that the plan was made for, as `simulate` takes it.
        batch: samples of a step, as `place` takes it.
        cost_model: what ops cost in the prediction, as `place` takes it.
        runtime: how the prediction takes the plan to be run, as `simulate` takes it; a plan for a loop by `run`.
        order: the rule that ops are run under, in place of the plan's own order, as `simulate` takes it.
        host: what it costs to issue ops in the prediction, as `place` takes it.
        data: `file.py:callable` that returns batches, or yields them, each as the example inputs are given and of their
            sizes; the same in every process. Without it, inputs that are all zero become normal numbers, and of others
            each step has the samples in another order.
        seed: of the weights, and of batches that are made.
        limit: seconds after which the processes are ended.
        chart: a chart of both steps to write: `*.png`, `*.svg` or `*.html`.
        trace: a file of both steps to write for ui.perfetto.dev: `*.json` or `*.json.gz`.

    """
    with _launched(devices, in_one_process=in_one_process) as launched:
        _check_files(model, plan, cluster, options, out)
        _check_model(model)  # imports torch, unlike the checks of files
        _check_loop(devices, options["chart"] or options["trace"] or out, asked=in_one_process)
        used = _devices(devices, cluster, launched, in_one_process=in_one_process)
        asked = _asked(options)
        by = asked if in_one_process else _by_processes(asked, plan, cluster)
        planned = simulate(model, plan, cluster=cluster, **by)
        training = _training(model, steps, options)
        if in_one_process:
            return _looped(planned, training, used, check=check)
        found = _measured(planned, training, launched, used, check=check, limit=options["limit"])
        _save(found, options["chart"], options["trace"], out, {**asked, "cluster": cluster, "batch": None})
        return found


def _training(model: GraphLike, steps: int, options: RunOptions) -> Training:
    """What is trained."""
    from envs.running.training_job import Training

    return Training(str(model), steps, options["batch"] or 0, options["seed"], options["data"])


def _asked(options: RunOptions) -> ProblemOptions:
    """Those of the problem."""
    return {
        "groups": options["groups"], "batch": options["batch"], "cost_model": options["cost_model"],
        "runtime": options["runtime"], "order": options["order"], "host": options["host"],
    }  # fmt: skip


def _by_processes(asked: ProblemOptions, plan: PlanLike, cluster: ClusterLike) -> ProblemOptions:
    """The options, with the runtime of such processes for a plan that was made for a loop, or does not say for what."""
    from evaluation.commands.given_plans import read_given
    from graphs.files.load import load_cluster
    from graphs.runtime import process_runtime, runtime_of

    made_for = getattr(read_given(plan), "made_for", None)
    is_own = made_for is not None and made_for.runtime and not runtime_of(made_for.runtime).streams
    if asked["runtime"] != AUTO or is_own:
        return asked
    own = asked.copy()
    own["runtime"] = process_runtime(load_cluster(cluster)).name if cluster else "run"
    return own


def _launched(devices: Sequence[str], *, in_one_process: bool) -> AbstractContextManager[Workers | None]:
    """The processes that torchrun started together with this one, if it did. All but rank 0 do not return from here.

    Raises InputError for settings that are torchrun's to say.
    """
    from envs.running.launched import Launched
    from envs.running.launched_workers import LaunchedWorkers
    from envs.running.worker import take_part

    launched = Launched.here()
    if launched is None:
        return nullcontext()
    if launched.rank:
        take_part(launched)
    workers = LaunchedWorkers(launched)
    workers.start()  # first of all, as the others end when this process closes what connects them
    if devices or in_one_process:
        workers.close()
        raise InputError(
            "torchrun has started this process, and so says how many there are and where: leave `devices` and "
            "`in_one_process` out, or run it without torchrun"
        )
    return workers


def _measured(
    planned: SimulatedPlan,
    training: Training,
    launched: Workers | None,
    devices: tuple[str, ...],
    *,
    check: bool,
    limit: int,
) -> MeasuredPlan:
    """Run a plan in processes of their own, or in those that were launched."""
    from envs.running.measured_run import run_plan
    from envs.running.processes import Workers
    from envs.running.ways import check_model
    from evaluation.measuring.measured_plan import MeasuredPlan

    _check_precision(planned)
    check_model(training, planned.problem, planned.plan, devices[0])
    tqdm.write(f"{training.steps} steps in {len(devices)} processes on {', '.join(devices)} ...", file=sys.stderr)
    with launched or Workers(devices) as workers:
        with waiting(f"running {planned.problem.name}") as tell:
            run = run_plan(workers, training, planned.problem, planned.plan, check=check, limit=limit, tell=tell)
        if launched is not None:
            launched.close(well=run.is_equal)
        return MeasuredPlan(planned, run, training, devices, workers.cores)


def _looped(planned: SimulatedPlan, training: Training, devices: tuple[str, ...], *, check: bool) -> LoopedPlan:
    """Run a plan in this process."""
    import torch

    from envs.placed_models.call_placement import on_calls
    from envs.placed_models.parallel import run_by_plan
    from envs.replay.replayed_forward import ReplayedForward
    from envs.running.loop_run import run_in_loop
    from envs.running.model_data import seeded_example
    from envs.simulation.simulator import LaidOut
    from envs.simulation.simulator import simulate as simulated
    from evaluation.commands.running import in_loop, report_moves
    from evaluation.measuring.looped_plan import LoopedPlan

    _check_precision(planned)
    example = seeded_example(training.model, training.seed, training.samples)
    made, used = planned.problem, [torch.device(each) for each in devices]
    replays = made.runtime.replays
    problem, rounded, moved = on_calls(in_loop(made, aside=replays or None), planned.plan, example.module)
    if moved and not replays:
        report_moves(problem, planned.plan, rounded, moved)

    def place(module: Module) -> Module:
        of = replace(example, module=module)
        replayed = ReplayedForward(of, LaidOut.of(made, planned.plan)) if replays else None
        return run_by_plan(module, problem=problem, plan=rounded, devices=devices, replayed=replayed)

    predicted = planned.timeline if replays else simulated(problem, rounded)
    return LoopedPlan(planned, run_in_loop(training, predicted, place, used, check=check), training, devices)


def _check_precision(planned: SimulatedPlan) -> None:
    """Raise InputError for a plan in types of numbers that the model's own code does not say."""
    if precision := planned.problem.graph.captured_in:
        raise InputError(
            f"this plan is for training in {precision}, and a model is run in the types that its own code says: let "
            "that cast it, and plan it without `precision`"
        )


def _check_loop(devices: Sequence[str], written: PathLike | None, *, asked: bool) -> None:
    """If a run in one process is asked for, raise InputError without devices, and for files that it cannot fill."""
    if not asked:
        return
    if not devices:
        raise InputError("`in_one_process` runs on the devices that are given: name one for each, such as cuda:0,cpu")
    if written is not None:
        raise InputError(
            f"{written}: `chart`, `trace` and `out` show when each op ran, which is not measured in one process; leave "
            "them out"
        )


def _save(
    found: MeasuredPlan,
    chart: PathLike | None,
    trace: PathLike | None,
    out: PathLike | None,
    asked: Mapping[str, object],
) -> None:
    """Write what is asked for."""
    from envs.files.trace import save_traces

    if chart is not None:
        found.save_chart(Path(chart))
    if trace is not None:
        save_traces({"predicted": found.predicted, "measured": found.measured}, Path(trace))
    if out is not None:
        from evaluation.measuring.measured_folder import save_run

        save_run(found, Path(out), {key: value for key, value in asked.items() if isinstance(value, str)})


def _check_files(
    model: GraphLike, plan: PlanLike, cluster: ClusterLike, options: RunOptions, out: PathLike | None
) -> None:
    """Raise InputError for what cannot be read or written."""
    inputs = [model, plan, cluster]
    check_charts(options["chart"], inputs=inputs)
    check_writable(options["trace"], endings=TRACES, inputs=inputs)
    if out is not None:
        from evaluation.measuring.measured_folder import check_free

        check_free(Path(out))
    if isinstance(plan, Path):
        check_readable(plan, "`placelab place GRAPH --out FILE` writes a plan")
    _check_data(options["data"])


def _check_model(model: GraphLike) -> None:
    """Raise InputError for what processes cannot make themselves, or what names no model."""
    from graphs.files.graph_source import NamedModel
    from graphs.formats.graph_files import is_graph_file

    if not isinstance(model, str) or is_graph_file(model):
        what = f"{model} is a graph" if isinstance(model, str) else f"an object of type {type(model).__name__} is given"
        raise InputError(
            f"{what}, and each process makes the model itself: give file.py:callable or a family spec; "
            "`placelab.parallelize` runs a module that is there already"
        )
    NamedModel(model)


def _check_data(data: str) -> None:
    """Raise InputError for a file of batches that is not there."""
    if data:
        file, _, name = data.rpartition(":")
        if not file.endswith(".py") or not name or not Path(file).is_file():
            raise InputError(f"data: {data} is no path/to/file.py:callable that exists")


def _devices(
    given: Sequence[str], cluster: ClusterLike, launched: Workers | None, *, in_one_process: bool
) -> tuple[str, ...]:
    """On what each process is to run. Raises InputError for devices that cannot be used, or not together."""
    from envs.placed_models.places import given_devices  # with torch
    from evaluation.commands.problems import CLUSTER
    from graphs.files.load import load_cluster

    found = load_cluster(cluster or CLUSTER)
    if launched is not None:
        if len(launched.devices) != len(found):
            raise InputError(
                f"torchrun has started {len(launched.devices)} processes, and the cluster has {len(found)} devices: "
                "start one for each"
            )
        return launched.devices
    if not given:
        from envs.running.processes import devices_for

        return devices_for(len(found))
    used = tuple(str(device) for device in given_devices(given, found))
    if in_one_process:
        return used
    types = {device.partition(":")[0] for device in used}
    if len(types) > 1:
        raise InputError(
            f"devices: {', '.join(used)} are of several kinds; processes run all on CPUs or all on GPUs, and "
            "`in_one_process=True` runs an op placement on both"
        )
    if types != {"cpu"} and len(set(used)) < len(used):
        raise InputError(f"devices: {', '.join(used)} has a GPU twice; NCCL takes one process for each")
    return used
