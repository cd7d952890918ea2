"""Runtime: a way of running plans, which says what happens first on a device, what overlaps, and what issuing costs.

A runtime is named by a spec, `run:host=30us`: one of `RUNTIMES`, and what it has otherwise.

- `ideal` is the machine of list scheduling: devices run first what the longest path of ops waits for, and nothing takes
  time but ops and transfers, which overlap wherever data allow it. No program that is known does all of that.
- `fifo` is the machine of many papers on placement: devices run what has been ready longest.
- `parallelize` is the loop of a model's own code with `placelab.parallelize`: one process issues PyTorch's order, which
  devices follow strictly (`envs.simulation.streams`). Copies have streams of their own, and gradients of weights wait
  until a device has nothing else to do. With `copies=barrier` a copy occupies both of its ends, as `Tensor.to` has it,
  and with `defer=false` gradients are computed as autograd has them.
- `run` is `placelab run`: a process for each device runs its ops in the plan's order.
- `replay` is that loop with training steps that are replayed in the plan's order (`envs.replay`): one thread launches
  CUDA graphs of captured ops, and copies have side streams. With `graphs=false` it calls the ops one by one.
- `torch-pipelining` and `megatron` are torch.distributed.pipelining and Megatron-LM: a process for each device runs
  PyTorch's order, and what a stage's pass makes for other stages is sent when all of the pass has ended. Replicas of
  Megatron-LM sum up all gradients of a stage together, after its last backward pass; with `overlap=true` they do as
  PyTorch's DistributedDataParallel does.

Replicas sum up gradients along a ring on the first two, and as NCCL does on GPUs of the others (`envs.expansion.nccl`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from graphs.cluster import Cluster
from graphs.foundation import by_name
from graphs.foundation.by_name import Extension
from graphs.foundation.errors import InputError
from graphs.foundation.knobs import without_brackets
from graphs.host import HOSTS, Host, host_of
from graphs.op_graph import OpGraph

_ORDERS = "envs.orders"
LONGEST_PATH: Extension[Any] = Extension(_ORDERS, "longest_path")
FIFO: Extension[Any] = Extension(_ORDERS, "fifo")  # first come, first served
PROGRAM: Extension[Any] = Extension(_ORDERS, "program")  # the order in which PyTorch issues a step


@dataclass(frozen=True)
class Runtime:
    """How plans are run.

    `order` is the rule by which devices choose among the ops that are ready, unless a plan has an order of its own.
    With a `host`, ops start when it has issued them, and devices run what was issued first.
    """

    name: str = field(compare=False)  # the spec that `runtime_of` takes
    order: Extension[Any] = LONGEST_PATH  # builds an `envs.orders.Order`
    host: Host | None = None  # None if issuing takes no time, but for the devices' own launches
    streams: bool = False  # devices run strictly in the order of issue
    all_reduce: Literal["ring", "nccl"] = "ring"  # how GPUs sum up gradients, unless a plan says it
    defer: bool = False  # gradients of weights wait until a device has nothing else to do; only of streams
    plain: bool = False  # the model runs as it is, all on one device, and is not given to a plan; only of streams
    copies: Literal["barrier", "side"] = "barrier"  # they occupy the devices at both ends, or streams of their own
    sends_at_end: bool = False  # what a pass makes for other stages is sent when all of the pass has ended
    replays: bool = False  # one thread calls the ops of a captured step in the plan's order
    graphs: bool = False  # it launches CUDA graphs of them instead; only where steps are replayed
    overlap: bool = True  # replicas sum up gradients bucket by bucket during the backward pass, and not all at its end

    @property
    def frees_order(self) -> bool:
        """Whether plans are run in any order that they have, and the rule is only that of list scheduling."""
        return self.order == LONGEST_PATH and not self.streams

    @property
    def is_ideal(self) -> bool:
        """Whether devices wait for data alone: for no host, and for nothing that a program issued before."""
        return self.host is None and not self.streams

    @property
    def on_one_device(self) -> Runtime:
        """That of a plan on one device: in a loop nobody needs `parallelize` for it, and nothing waits."""
        return replace(self, defer=False, plain=True) if self.streams else self

    def with_knobs(self, **knobs: str | Extension[Any]) -> Runtime:
        """The same but for what is given, as text or an order itself. Raises InputError as `runtime_of`."""
        kind, own = _parsed(self.name)
        return _runtime(kind, own | knobs) if knobs else self


def default_runtime(graph: OpGraph, cluster: Cluster) -> Runtime:
    """How plans are run, unless it is said: in the user's own loop on GPUs, by a process for each device on CPUs."""
    return process_runtime(cluster) if cluster.is_cpu.all() else loop_runtime(graph, cluster)


def loop_runtime(graph: OpGraph, cluster: Cluster) -> Runtime:
    """That of the user's own loop.

    There is no host where a CPU is, which runs an op in the thread that issues it, nor for a graph with measured times:
    its ops are layers, or whatever else was measured, and not what PyTorch issues.
    """
    measured = np.array([graph.measured_seconds, *graph.measured_on.values()])
    has_host = np.isnan(measured).all() and not cluster.is_cpu.any()
    return runtime_of("parallelize" if has_host else "parallelize:host=none")


def process_runtime(cluster: Cluster) -> Runtime:
    """That of a process for each device of a cluster; without a host where a CPU is, as in `default_runtime`."""
    return runtime_of("run:host=none" if cluster.is_cpu.any() else "run")


def runtime_of(spec: str, *, order: str = LONGEST_PATH.name) -> Runtime:
    """The runtime that a spec names; its name has the knobs that differ from those of its kind alone.

    An `order` is in place of its own, unless that is longest_path, which files say that say nothing. Raises InputError
    for an unknown runtime, knob, order or host.
    """
    runtime = _runtime(*_parsed(spec))
    return runtime if order == LONGEST_PATH.name else runtime.with_knobs(order=order)


def _parsed(spec: str) -> tuple[str, dict[str, str]]:
    """The kind and its knobs, as text; a value, such as an order of a user's own, may have commas.

    Raises InputError for what is no knob.
    """
    kind, colon, rest = spec.partition(":")
    parts = [part.partition("=") for part in _BEFORE_KNOB.split(rest)] if colon else []
    if not all(equals for _, equals, _ in parts):
        raise InputError(f"{spec!r}: expected knobs as key=value,key=value after the colon, got {rest!r}")
    return kind, {knob: without_brackets(text) for knob, _, text in parts}


def _runtime(kind: str, knobs: Mapping[str, str | Extension[Any]]) -> Runtime:
    if kind not in RUNTIMES:
        raise InputError(by_name.unknown("runtime", kind, RUNTIMES))
    base, values = RUNTIMES[kind], dict[str, Any]()
    known = (
        *_KNOBS, *(_OF_STREAMS if base.streams else ()), *(() if base.overlap else _OF_SUMS),
        *(_OF_REPLAYS if base.replays else ()),
    )  # fmt: skip
    for knob, text in knobs.items():
        if knob not in known:
            raise InputError(f"{by_name.spec_of(kind, knobs)!r}: {by_name.unknown('knob', knob, known)}")
        values[knob] = _value(base, knob, text)
    changed = {knob: knobs[knob] for knob, value in values.items() if value != getattr(base, knob)}
    if base.graphs and not values.get("graphs", True):
        values.setdefault("host", HOSTS["replayed"])
    if "order" in changed:
        changed["order"] = str(values["order"])
    return replace(base, name=by_name.spec_of(kind, changed), **values)


def _value(base: Runtime, knob: str, given: str | Extension[Any]) -> object:
    """What is given for a knob, for a runtime with the processes of another."""
    if knob == "order":
        return order_of(given)
    text = str(given)
    if knob in _WHETHER:
        if text not in ("true", "false"):
            raise InputError(f"{knob}={text}: {_WHETHER[knob]}; expected true or false")
        return text == "true"
    if knob == "copies":
        if text not in ("barrier", "side"):
            raise InputError(
                f"copies={text}: they hold both devices up, or have side streams; expected barrier or side"
            )
        return text
    host = host_of(text)
    return host and replace(host, per_device=base.host is not None and base.host.per_device, in_order=base.replays)


def order_of(what: Extension[Any] | str) -> Extension[Any]:
    """The order that a spec names, such as "program" or "my.py:build". Raises InputError as `Extension.of`."""
    return Extension.of(_ORDERS, what)


IDEAL = Runtime("ideal")
_PROCESSES = replace(HOSTS["eager"], per_device=True)
RUNTIMES = {
    each.name: each
    for each in (
        IDEAL,
        Runtime("fifo", FIFO),
        Runtime(
            "parallelize",
            PROGRAM,
            HOSTS["eager"],
            streams=True,
            all_reduce="nccl",
            defer=True,
            copies="side",
            sends_at_end=True,
        ),
        Runtime("run", host=_PROCESSES, all_reduce="nccl"),
        Runtime("replay", host=HOSTS["graphs"], all_reduce="nccl", replays=True, graphs=True),
        Runtime("torch-pipelining", PROGRAM, _PROCESSES, all_reduce="nccl", sends_at_end=True),
        Runtime(
            "megatron",
            PROGRAM,
            replace(HOSTS["megatron"], per_device=True),
            all_reduce="nccl",
            sends_at_end=True,
            overlap=False,
        ),
    )
}
_KNOBS = ("order", "host")
_OF_STREAMS = ("defer", "copies")
_OF_SUMS = ("overlap",)
_OF_REPLAYS = ("graphs",)
_WHETHER = {
    "defer": "gradients of weights wait or do not",
    "overlap": "gradients are summed up during the backward pass or after it",
    "graphs": "ops are launched as CUDA graphs or called one by one",
}
_BEFORE_KNOB = re.compile(rf",(?![^\[]*\])(?=(?:{'|'.join((*_KNOBS, *_OF_STREAMS, *_OF_SUMS, *_OF_REPLAYS))})=)")
