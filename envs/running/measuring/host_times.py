"""What it costs a thread of this machine to issue an op, in PyTorch without compilation: a job for `Workers`.

Small models are trained in a plain loop, on tensors so small that a kernel takes less than it takes Python, PyTorch's
dispatcher and autograd to issue it. So a pass takes as long as its issuing, on a GPU as well, which is not waited for
in between; on a processor the kernels of some hundred numbers are in it, and a GPU's launches are not.

They are also trained by a plan (`envs.placed_models`), with half of the ops on each of two places, for which one device
stands, and so with gradients of weights that are deferred: what their passes take longer is Python's own work.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import distributed

from envs.placed_models.call_placement import on_calls
from envs.placed_models.copies import CopyOf
from envs.placed_models.parallel import counted_copies, run_by_plan
from envs.plans.plan import Plan
from envs.running.clock import finish
from envs.running.measuring.eager_step import Clock, EagerStep, part_seconds, timed_ops
from envs.running.processes import Process
from graphs.files.load import load_cluster
from graphs.host import HOSTS, Host
from graphs.op_graph import Floats, OpGraph, Phase
from graphs.problem import Problem
from graphs.runtime import runtime_of
from graphs.transforms.autograd_step import can_wait

MODELS = (  # as deep as models are, so that what a step takes once counts as little as there
    "transformer:layers=6,width=16,heads=2,sequence=4,batch=2,vocabulary=16",
    "llama:layers=6,width=16,heads=2,sequence=4,batch=2,vocabulary=16",
    "vit:layers=6,width=16,heads=2,image=32,batch=2",
    "rnnlm:layers=2,steps=8,hidden=16,batch=2,vocabulary=16",
)
COLLECTIVES = 20  # all-reduces that a thread enqueues one after the other
OF_OPS = "forward", "backward", "update", "placed", "deferral"  # fields of `Host`: all but collectives


@dataclass(frozen=True)
class MeasureHost:
    """Measure what issuing costs the first process, while the others wait; all of them enqueue collectives."""

    graphs: Mapping[str, OpGraph]  # the training step of each model, with its calls
    steps: int
    clock: Clock = time.perf_counter

    def __call__(self, process: Process) -> Host | None:
        """None in the other processes."""
        collective = self._collective(process.device)
        if process.rank:
            return None
        of_models = [self._of_ops(model, graph, process.device) for model, graph in self.graphs.items()]
        seconds = dict(zip(OF_OPS, np.median(of_models, axis=0).tolist(), strict=True)) | {"collective": collective}
        return HOSTS["eager"].with_seconds({of: float(f"{taken:.4g}") for of, taken in seconds.items()})

    def _of_ops(self, model: str, graph: OpGraph, device: torch.device) -> Sequence[float]:
        """Seconds as `per_op` says, of three steps that take turns."""
        placed = PlacedStep(model, graph, device, defer=False)
        trained = EagerStep(model, device), placed, PlacedStep(model, graph, device, defer=True)
        parts = [part for step in trained for part in step.parts]
        taken = part_seconds(parts, self.steps, lambda: finish(device), self.clock).reshape(len(trained), -1)
        return per_op(taken, timed_ops(graph), placed.copies, int(can_wait(graph).sum()))

    def _collective(self, device: torch.device) -> float:
        """Seconds to enqueue one of one number."""
        number, works = torch.ones(1, device=device), []

        def enqueue() -> None:
            works.append(distributed.all_reduce(number, async_op=True))

        def wait() -> None:
            while works:
                works.pop().wait()
            finish(device)

        return float(part_seconds([enqueue] * COLLECTIVES, self.steps, wait, self.clock).mean())


def per_op(taken: Floats, ops: Floats, copies: int, deferred: int) -> Sequence[float]:
    """(`OF_OPS`,) seconds, from (3, phases) seconds of a step: as it is, by a plan, and by one that defers.

    There are (phases,) ops; in the forward pass of a placed step copies, each of which costs what an op does; and
    gradients that are deferred. What takes no longer by a plan costs nothing more.
    """
    plain, placed, deferring = taken
    of_placed = placed[Phase.FORWARD] / (ops[Phase.FORWARD] + copies) - plain[Phase.FORWARD] / ops[Phase.FORWARD]
    of_deferral = (deferring - placed)[: Phase.UPDATE].sum() / (2 * deferred)  # in both passes
    return [*(plain / ops).tolist(), max(float(of_placed), 0.0), max(float(of_deferral), 0.0)]


class PlacedStep(EagerStep):
    """A training step of a model by a plan: the first half of its ops is on one place, the second on another.

    Each call is seen, be it in a module that would run whole.
    """

    def __init__(self, model: str, graph: OpGraph, device: torch.device, *, defer: bool) -> None:
        """`graph` is the training step of the model; `defer`: all gradients of weights wait that can."""
        super().__init__(model, device)
        runtime = runtime_of(f"parallelize:host=none,defer={str(defer).lower()}")
        problem = Problem(graph, load_cluster("p100:devices=2"), runtime=runtime)
        half = Plan.of_units(problem, (2 * np.arange(graph.num_units) >= graph.num_units).astype(np.int64))
        problem, plan, _ = on_calls(problem, half, self.module)
        run_by_plan(self.module, problem, plan, [device, device], whole_modules=False)
        with counted_copies(self.module) as copies:
            for part in self.parts:
                part()
        self.copies = sum(each.of is not CopyOf.GRADIENT for each in copies)  # of its forward pass
