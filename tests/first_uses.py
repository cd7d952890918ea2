"""A small model, captured and simulated as this is imported: what comes after has all that a first use looks up.

`tests.forked` imports it in the process that others are forked from, each of which would take as long again.
"""

import torch
from torch import nn

from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.files.load import load_cluster
from graphs.problem import Problem

graph = training_step(capture(nn.Linear(2, 2), (torch.ones(1, 2),), name="first"))
simulate(Problem(graph, load_cluster("p100x2")), Plan.of([0] * len(graph)))
