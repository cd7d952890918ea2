"""Modules that do what is hard to trace, run by random plans: outputs, gradients and buffers are as without."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from envs.placed_models.call_placement import on_calls
from envs.placed_models.parallel import run_by_plan
from envs.plans.plan import Plan
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.problem import Problem
from graphs.runtime import IDEAL
from tests.envs.placed_models.models import WAITING
from tests.graphs.small_modules import RECORDED, Make

NO_BACKWARD = {"inplace", "inplace functions"}  # which PyTorch refuses without a plan, too


def values(tensor: Tensor) -> Tensor:
    return torch.rand_like(tensor) if tensor.is_floating_point() else tensor


@pytest.mark.filterwarnings("ignore:the plan does not know the call .'linear'.*:UserWarning")  # of "dead"
@pytest.mark.parametrize("name", sorted(RECORDED))
def test_a_module_computes_the_same_by_a_random_plan(name: str) -> None:
    make: Make = RECORDED[name]
    for seed in range(2):
        torch.manual_seed(seed)
        module, example = make()
        torch.manual_seed(seed)
        parallel, _ = make()
        graph = training_step(capture(module, example, name=name))
        problem = Problem(graph, load_cluster("p100x3"), runtime=WAITING if seed else IDEAL)
        placement = np.random.default_rng(seed).integers(0, 3, graph.num_units)
        problem, plan, _ = on_calls(problem, Plan.of_units(problem, placement), parallel)
        run_by_plan(parallel, problem, plan, ["cpu"] * 3)
        inputs = tuple(values(each) for each in example)
        found = []
        for each in (module, parallel):
            torch.manual_seed(1)
            given = [x.clone() for x in inputs]
            outputs = [out for out in tree_leaves(each(*given)) if isinstance(out, Tensor)]
            if name not in NO_BACKWARD:
                loss = torch.stack([out.abs().sum() for out in outputs if out.requires_grad]).sum()
                loss.backward()  # type: ignore[no-untyped-call]
            gradients = [None if w.grad is None else w.grad.to_dense() for w in each.parameters()]
            found.append((outputs, given, gradients, each.state_dict()))
        torch.testing.assert_close(*found)
