"""A training step of a model in a plain loop, in PyTorch without compilation, and how long its parts take to call."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from envs.costs.busy_machine import quiet_seconds
from envs.costs.op_times import is_free
from envs.running.adam import Adam
from envs.running.reference import optimizers
from graphs.capture.examples import example_of, with_data
from graphs.capture.gradient_rules import trained
from graphs.capture.nested import results_and_states, with_tensors
from graphs.op_graph import Floats, OpGraph, Phase

WARM_UP = 3  # steps that do not count: they also load, allocate and fill caches

Clock = Callable[[], float]


class EagerStep:
    """A training step of a model in a plain loop; its calls are the parts, in their order.

    The loss is that of a captured step: what is trained of what the model returns, summed up.
    """

    def __init__(self, model: str, device: torch.device) -> None:
        example = with_data(example_of(model), 0, str(device))
        self.module = example.module.to(device)  # what had data before it was drawn may be on a processor

        def there(given: Tensor) -> Tensor:
            return given.detach().to(device).requires_grad_(given.requires_grad)

        args, kwargs = with_tensors((example.args, example.kwargs), there)
        self._call: Callable[[], object] = partial(self.module, *args, **kwargs)
        self.importing = example.importing  # inside, the model may import what its file may
        self.weights = list(self.module.parameters())
        self._optimizers = list[torch.optim.Optimizer]()
        self._loss = torch.zeros(0)

    @property
    def parts(self) -> tuple[Callable[[], object], ...]:
        """Those of the phases."""
        return self._forward, self._backward, self._update

    def _forward(self) -> None:
        for weight in self.weights:
            weight.grad = None
        returned = self._call()
        outputs = trained(returned, results_and_states(returned)[0], lambda each: bool(each.requires_grad))
        first, *others = [each.sum() if each.dim() else each for each in outputs]
        self._loss = sum(others, first)

    def _backward(self) -> None:
        self._loss.backward()  # type: ignore[no-untyped-call]

    def _update(self) -> None:
        if not self._optimizers:
            self._optimizers = optimizers([each for each in self.weights if each.grad is not None], Adam())
        for optimizer in self._optimizers:
            optimizer.step()


def part_seconds(parts: Sequence[Callable[[], object]], steps: int, wait: Callable[[], None], clock: Clock) -> Floats:
    """(parts,) seconds that it takes to call each part of a step, in the quietest of some steps.

    `wait` is called between two steps.
    """
    taken = []
    for _ in range(WARM_UP + steps):
        wait()
        times = [clock()]
        for part in parts:
            part()
            times.append(clock())
        taken.append([after - before for before, after in pairwise(times)])
    return np.array([quiet_seconds(each) for each in np.array(taken[WARM_UP:]).T])


def timed_ops(graph: OpGraph) -> Floats:
    """(parts,) how many ops of each phase of a training step take time, which is what a host is charged for."""
    return np.bincount(graph.phase[~is_free(graph)], minlength=len(Phase))[: Phase.UPDATE + 1].astype(np.float64)
