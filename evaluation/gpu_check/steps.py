"""Steps on one device: measured and predicted time and memory, kinds of ops and the cost model, the host's share."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import BaseTorchFunctionMode
from torch.profiler import ProfilerActivity, profile, supported_activities

from envs.costs.costs import costs_of, timed
from envs.placed_models.parallel import counted_copies
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from envs.timelines.timeline import Timeline
from evaluation.commands.running import parallelize
from evaluation.gpu_check.card import TINY, Card, CardTraining, Row
from graphs.capture.function_calls import FunctionCalls
from graphs.files.graph_source import graph_source
from graphs.files.load import load_cluster, load_graph
from graphs.host import HOSTS
from graphs.problem import Problem
from graphs.runtime import PROGRAM

GIB = 2**30
# How a model is trained -> its precision for predictions, and the arguments of `CardTraining`.
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "fp32, Adam": ("auto", {}), "fp32, SGD": ("auto", {"optimizer": "sgd"}),
    "bf16 weights": ("bf16-true", {"weights": torch.bfloat16}),
    "autocast bf16": ("bf16-mixed", {"autocast": torch.bfloat16}),
}  # fmt: skip
COST_MODELS = {"roofline": "roofline", "typical": "roofline:efficiency=typical"}
_NODE = re.compile(r"autograd::engine::evaluate_function: (\w+)Backward\d")
_SAME = {  # an operation of a device's library -> the kind of op that it belongs to
    "cudnn_convolution": "convolution", "cudnn_batch_norm": "batch_norm", "native_batch_norm": "batch_norm",
    "_native_batch_norm_legit": "batch_norm", "mkldnn_convolution": "convolution",
}  # fmt: skip


def predicted(
    card: Card, spec: str, optimizer: str, cost_model: str, precision: str = "auto"
) -> tuple[Problem, Timeline]:
    """A step of the model on the catalogue's device, in PyTorch's order."""
    graph = load_graph(graph_source(spec).in_precision(precision))
    problem = timed(Problem(graph, card.cluster(), optimizer), cost_model)
    return problem, simulate(problem, Plan(devices=((0,),) * len(problem.graph), order=PROGRAM))


def steps(card: Card) -> Iterator[Row]:
    """Each model trained in several ways."""
    for model, spec in card.models.items():
        for way, (precision, how) in WAYS.items():
            row: Row = {"model": model, "way": way}
            training = CardTraining(spec, card.device, **how)
            row["measured_ms"] = 1e3 * card.wall_seconds(training.step, 5)
            if card.is_gpu:
                torch.accelerator.reset_peak_memory_stats(card.device)
                training.step()
                row["allocated_gib"] = torch.accelerator.max_memory_allocated(card.device) / GIB
                row["reserved_gib"] = torch.accelerator.max_memory_reserved(card.device) / GIB
            del training
            card.free()
            for name, cost_model in COST_MODELS.items():
                _, timeline = predicted(card, spec, str(how.get("optimizer", "adam")), cost_model, precision)
                row[f"{name}_ms"] = 1e3 * timeline.step_seconds
            row["predicted_gib"] = float(timeline.peak_bytes[0]) / GIB
            yield row


def kinds(card: Card) -> Iterator[Row]:
    """Milliseconds of each kind of op in a step, by PyTorch's profiler and by the cost models."""
    for model, spec in card.models.items():
        measured = _kernels_by_kind(card, CardTraining(spec, card.device, optimizer="none"))
        card.free()
        said: dict[str, dict[str, float]] = defaultdict(dict)
        for name, cost_model in COST_MODELS.items():
            problem, _ = predicted(card, spec, "sgd", cost_model)
            seconds = costs_of(problem).busy_seconds(problem)[:, 0].tolist()
            for kind, taken in zip(problem.graph.kinds, seconds, strict=True):
                said[_kind(kind)][name] = said[_kind(kind)].get(name, 0.0) + 1e3 * taken
        for kind, taken in sorted(measured.items(), key=lambda item: -item[1])[:12]:
            row: Row = {"model": model, "kind": kind, "kernels_ms": 1e3 * taken}
            yield row | {f"{name}_ms": value for name, value in said.get(kind, {}).items()}


def _kernels_by_kind(card: Card, training: CardTraining, count: int = 3) -> dict[str, float]:
    """Seconds on the device in a forward and a backward pass."""
    activities = supported_activities() if card.is_gpu else [ProfilerActivity.CPU]  # type: ignore[no-untyped-call]
    own, all_of = (
        ("self_device_time_total", "device_time_total") if card.is_gpu else ("self_cpu_time_total", "cpu_time_total")
    )
    training.step()
    found: dict[str, float] = defaultdict(float)
    with profile(activities=activities) as forward:
        losses = [training.loss() for _ in range(count)]
        card.wait()
    for event in forward.key_averages():
        if event.key.startswith("aten::"):
            found[_kind(event.key.replace("::", "."))] += getattr(event, own) / 1e6 / count
    with profile(activities=activities) as backward:
        for loss in losses:
            loss.backward()  # type: ignore[no-untyped-call]
        card.wait()
    for event in backward.key_averages():
        if node := _NODE.match(event.key):
            name = re.sub(r"(?<!^)(?=[A-Z])", "_", node[1]).lower()
            found[_kind(f"aten.{name}.grad")] += getattr(event, all_of) / 1e6 / count
    return {kind: seconds for kind, seconds in found.items() if seconds > 0}


def _kind(name: str) -> str:
    """One name for an op of a graph, an operation of PyTorch and a node of autograd."""
    forward = name.removeprefix("aten.").removesuffix("_weight").removesuffix(".grad").strip("_")
    forward = _SAME.get(forward, forward)
    return f"{forward}, backward" if name.endswith((".grad", ".grad_weight")) else forward


def host(card: Card) -> Iterator[Row]:
    """Microseconds of the processor for a call, and for an op of the backward pass, of models so small that it counts.

    A call is what PyTorch shows to a mode: views are calls, too. `copies` are those of both passes. A mode that does
    nothing is the least that whatever sees calls from Python takes.
    """
    free = load_cluster("p100x2")
    free = replace(free, hosts={"eager": replace(HOSTS["eager"], deferral=0.0)})  # so that all gradients wait that can
    for model, spec in TINY.items():
        graph = load_graph(spec)
        gradients = sum(int(phase) == 1 for phase in graph.phase)
        units, drawn = graph.units.tolist(), np.random.default_rng(1).integers(0, 2, graph.num_units).tolist()
        half, random = [int(2 * unit >= graph.num_units) for unit in units], [drawn[unit] for unit in units]
        plain = CardTraining(spec, card.device, optimizer="none")
        with FunctionCalls(str) as seen:
            plain.module(*plain.args, **plain.kwargs)
        calls = seen.made.total()
        for way, devices, defers in (
            ("plain", [], None), ("parallelize", [0] * len(graph), None),
            ("half on each", half, None), ("half, not deferred", half, False),
            ("at random", random, None), ("at random, not deferred", random, False),
        ):  # fmt: skip
            row: Row = {"model": model, "way": way, "calls": calls, "copies": 0}
            training = CardTraining(spec, card.device, optimizer="none")
            if devices:
                training.module = parallelize(
                    training.module,
                    Plan.of(devices),
                    devices=[str(card.device)] * 2,
                    graph=graph,
                    cluster=free,
                    defer_weight_gradients=defers,
                )
                with counted_copies(training.module) as copies:
                    training.step()
                row["copies"] = len(copies)
            own, without, empty = card.host_seconds([training.loss, plain.loss, partial(_seen, plain)])
            [both] = card.host_seconds([training.step])
            yield row | {
                "forward_us_per_call": 1e6 * own / calls,
                "over_plain_us_per_call": 1e6 * (own - without) / calls,
                "empty_mode_us_per_call": 1e6 * (empty - without) / calls,
                "backward_us_per_op": 1e6 * (both - own) / gradients,
            }


def _seen(training: CardTraining) -> Tensor:
    """The loss, computed in a mode that does nothing."""
    with BaseTorchFunctionMode():
        return training.loss()
