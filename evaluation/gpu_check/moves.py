"""Copies, and placements that need them: on the GPU and the processor, on one GPU given twice, in processes."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from envs.costs.costs import timed
from envs.costs.profile_file import load_profile
from envs.placed_models.call_placement import on_calls
from envs.plans.plan import Plan
from envs.running.measured_run import RunSteps, run_plan
from envs.running.measuring.copy_speeds import SIZES
from envs.running.measuring.copy_speeds import copies as copy_times
from envs.running.processes import Workers
from envs.running.training_job import Training
from envs.simulation.simulator import simulate
from evaluation.commands.graph_verbs import place, profile
from evaluation.commands.process_run import run
from evaluation.commands.running import parallelize
from evaluation.comparing.simulated_plan import SimulatedPlan
from evaluation.gpu_check.card import SMALL, TINY, Card, CardTraining, Row
from graphs.cluster import Cluster
from graphs.files.load import load_graph
from graphs.foundation import by_name
from graphs.problem import Problem
from graphs.runtime import runtime_of

PLACED = ("transformer", "rnnlm")  # of the small models
STEPS = 8  # of a plan that is run
LIMIT = 120  # seconds for them, and for the model's own first step


def copies(card: Card) -> Iterator[Row]:
    """Latency and bandwidth between the processor and the device, both ways, pageable and pinned."""
    measured = copy_times(card.device, 8, SIZES[:3] if card.small else SIZES)
    for memory in ("pageable", "pinned") if card.is_gpu else ("pageable",):
        for way, times in (("to the device", measured.to_gpu), ("from the device", measured.from_gpu)):
            line = getattr(times, memory)
            yield {
                "copy": f"{way}, {memory}",
                "latency_us": 1e6 * line.fixed,
                "gb_per_s": 1e-9 / max(line.per_byte, 1e-15),
            }


def placements(card: Card) -> Iterator[Row]:
    """Op placements on the device and the processor, run by `parallelize`: losses, and predicted and measured times."""
    bandwidth = {str(row["copy"]): float(row["gb_per_s"]) for row in copies(card)}["from the device, pageable"]
    with tempfile.TemporaryDirectory() as folder:
        for model in PLACED:
            spec = SMALL[model]
            problem = _on_both(card, spec, 1e9 * bandwidth, Path(folder))
            for name, plan in _plans(problem).items():
                training, plain = CardTraining(spec, card.device), CardTraining(spec, card.device)
                called, on_one, _ = on_calls(problem, plan, plain.module)
                called = replace(called, runtime=runtime_of("parallelize:host=none"))
                training.module = parallelize(
                    training.module,
                    plan,
                    devices=[str(card.device), "cpu"],
                    graph=problem.graph,
                    cluster=problem.cluster,
                )
                training.optimizer = torch.optim.Adam(training.module.parameters(), 1e-4)
                plain.optimizer = torch.optim.Adam(plain.module.parameters(), 1e-4)
                yield {
                    "model": model, "plan": name, "loss_differs": _difference(plain, training),
                    "simulated_ms": 1e3 * simulate(problem, plan).step_seconds,
                    "issued_ms": 1e3 * simulate(called, on_one).step_seconds,
                    "measured_ms": 1e3 * card.wall_seconds(training.step, 5),
                }  # fmt: skip
                card.free()


def _on_both(card: Card, spec: str, bandwidth: float, folder: Path) -> Problem:
    """A model on the device and the processor, with times measured on both."""
    profiles = []
    for device in dict.fromkeys((str(card.device), "cpu")):
        profiles.append(folder / f"{device.partition(':')[0]}.profile.json")
        profile(spec, out=profiles[-1], repeats=5, device=device, threads=1 if device == "cpu" else None)
    devices = [load_profile(file).machine.device() for file in (profiles[0], profiles[-1])]
    cluster = Cluster(
        "device and processor", (replace(devices[0], name="device"), replace(devices[1], name="processor")),
        np.full((2, 2), 15e-6), np.full((2, 2), bandwidth), channel=np.indices((2, 2))[0],
    )  # fmt: skip
    return timed(Problem(load_graph(spec), cluster), f"profiled:file={'+'.join(map(str, dict.fromkeys(profiles)))}")


def _plans(problem: Problem) -> dict[str, Plan]:
    draw, units = np.random.default_rng(0), problem.graph.num_units
    shares = {"device alone": 0.0, "processor alone": 1.0, "random, 5%": 0.05, "random, 20%": 0.2, "random, 50%": 0.5}
    plans = {name: Plan.of_units(problem, (draw.random(units) < share).astype(int)) for name, share in shares.items()}
    for placer, budget in (("annealing", 200), ("metis", 1), ("heft", 1)):
        plans[placer] = by_name.build("placers", placer).place(problem, seed=0, budget=budget).plan
    return plans


def one_card_twice(card: Card) -> Iterator[Row]:
    """`parallelize` with one device given twice, and the plain model: losses, times, and what a step leaves behind.

    Copies hold up what both are given, or run beside it in side streams.
    """
    for model, spec in SMALL.items():
        placed = place(spec, cluster="p100x2", placer="annealing", budget=100, runtime="ideal")  # with copies
        plain = CardTraining(spec, card.device)
        trainings, row = {"plain": plain}, Row(model=model)
        for name, aside, differs in (("placed", False, "loss_differs"), ("aside", True, "aside_differs")):
            training = trainings[name] = CardTraining(spec, card.device)
            devices = [str(card.device)] * 2
            training.module = parallelize(training.module, placed, devices=devices, side_streams=aside)
            row[differs] = _difference(CardTraining(spec, card.device), training)
        for name, each in trainings.items():
            row[f"{name}_ms"] = 1e3 * card.wall_seconds(each.step, 5)
            if card.is_gpu:
                card.free()
                before = torch.accelerator.memory_allocated(card.device)
                each.step()
                card.wait()
                row[f"{name}_left_mib"] = (torch.accelerator.memory_allocated(card.device) - before) / 2**20
        yield row
        card.free()


def replay(card: Card) -> Iterator[Row]:
    """Replayed steps on one device given twice, op by op and as CUDA graphs, and plain ones: losses and times.

    Half of the ops are on each of the two places, or they take turns, with a copy for most of them.
    """
    ways = {"op by op": False, "CUDA graphs": True} if card.device.type == "cuda" else {"op by op": False}
    for model, spec in TINY.items():
        graph = load_graph(spec)
        units = graph.units.tolist()
        plans = {"half on each": [int(2 * unit >= graph.num_units) for unit in units], "turns": [u % 2 for u in units]}
        trainings, rows = {"plain": CardTraining(spec, card.device)}, {"plain": Row(model=model, way="plain")}
        for plan, devices in plans.items():
            for way, graphs in ways.items():
                training = trainings[f"{way}, {plan}"] = CardTraining(spec, card.device)
                training.module = parallelize(
                    training.module, Plan.of(devices), devices=[str(card.device)] * 2, graph=graph, cluster="p100x2",
                    replay=training.args or training.kwargs, cuda_graphs=graphs,
                )  # fmt: skip
                differs = _difference(CardTraining(spec, card.device), training)
                rows[f"{way}, {plan}"] = {"model": model, "way": f"{way}, {plan}", "loss_differs": differs}
        hosts = card.host_seconds([each.step for each in trainings.values()])
        for (way, each), seconds in zip(trainings.items(), hosts, strict=True):
            measured = 1e3 * card.wall_seconds(each.step, 5)
            yield rows[way] | {"host_us_per_op": 1e6 * seconds / len(graph), "measured_ms": measured}
        card.free()


def _difference(plain: CardTraining, placed: CardTraining, count: int = 5) -> float:
    """The largest relative difference of losses while both train."""
    largest = 0.0
    for _ in range(count):
        one, other = float(plain.loss().detach()), float(placed.loss().detach())
        largest = max(largest, abs(one - other) / max(abs(one), 1.0))
        plain.step()
        placed.step()
    return largest


def processes(card: Card) -> Iterator[Row]:
    """`profile --in-step`, and plans run by a process on each device: equal to the model or not, and predicted times.

    On several devices also `run --in-one-process`, where gradients of weights wait or do not.
    """
    spec = SMALL["transformer"]
    with tempfile.TemporaryDirectory() as folder:
        profiled = Path(folder) / "step.profile.json"
        profile(spec, out=profiled, in_step=True, repeats=8, device=str(card.device))
        placed = place(spec, cluster=card.cluster(), placer="single_device", cost_model=f"profiled:file={profiled}")
    with Workers([str(card.device)]) as workers:
        yield _by_processes(placed, workers)
    if len(card.devices) > 1:
        cluster = card.cluster(len(card.devices))
        with Workers(card.devices) as workers:
            for placer in ("annealing", "gpipe:micro_batches=2", "data_parallel", "tensor_parallel"):
                yield _by_processes(place(spec, cluster=cluster, placer=placer, budget=100), workers)
        for defer in ("false", "true"):
            loop = runtime_of("parallelize" if card.is_gpu else "parallelize:host=none")
            way = loop.with_knobs(defer=defer).name
            placed = place(spec, cluster=cluster, placer="annealing", budget=100, runtime=way)
            done = run(
                spec, placed.result, cluster=cluster, devices=list(card.devices), steps=STEPS, runtime=way,
                in_one_process=True,
            )  # fmt: skip
            yield _ran(placed, done.run)


def _by_processes(placed: SimulatedPlan, workers: Workers) -> Row:
    """A plan of the small Transformer, run as `placelab run` does by processes that are there already."""
    training = Training(SMALL["transformer"], STEPS)
    return _ran(placed, run_plan(workers, training, placed.problem, placed.plan, check=True, limit=LIMIT))


def _ran(placed: SimulatedPlan, run: RunSteps) -> Row:
    return {
        "placer": placed.result.placer,
        "runtime": placed.problem.runtime.name,
        "devices": len(placed.problem.cluster),
        "predicted_ms": 1e3 * run.predicted.step_seconds,
        "measured_ms": 1e3 * run.step_seconds,
        "equal": "yes" if run.is_equal else "no",
    }
