"""Seen calls: what a model calls that is run by a plan takes its thread longer, but in modules that run whole.

`envs.placed_models` sees each call of a model, and does what the plan says. It does not look into a module all of whose
calls run on one device, where their weights are (`envs.placed_models.whole_modules`); to enter that takes as long as
some calls that are seen (`graphs.transforms.module_calls.ENTERING`). So `Host.placed` is taken

    layers.0, all on gpu:0       3 times
    layers.1, on both devices    by each of its own calls, and 3 times by each of its parts that is on one device

A module with a call whose gradient of a weight is deferred is looked into.
"""

from __future__ import annotations

from envs.simulation.blueprint import NONE, Blueprint
from envs.simulation.compiled import subroutine
from envs.simulation.run import Run

MIXED = NONE - 1


@subroutine
def see_calls(blueprint: Blueprint, run: Run) -> None:
    """Write what each op takes a thread longer under this placement, if it takes time."""
    modules = blueprint.modules
    for each in range(len(modules)):
        run.run_on[each] = MIXED if modules[each].is_seen else NONE
    for i in range(len(blueprint.needs)):
        need = blueprint.needs[i]
        _add(run, need.module, run.tasks[need.op].destination)
    for each in range(len(modules) - 1, 0, -1):
        _add(run, modules[each].outer, run.run_on[each])
    for op in range(len(run.seen_seconds)):
        module = blueprint.issue[op].module
        run.seen_seconds[op] = blueprint.placed if module != NONE and run.run_on[module] == MIXED else 0.0
    for each in range(1, len(modules)):
        if run.run_on[each] != MIXED and run.run_on[modules[each].outer] == MIXED:
            run.seen_seconds[modules[each].first] = blueprint.placed * modules[each].looks


@subroutine
def _add(run: Run, module: int, device: int) -> None:
    """A module needs something that is on a device."""
    if run.run_on[module] == NONE:
        run.run_on[module] = device
    elif run.run_on[module] != device and device != NONE:
        run.run_on[module] = MIXED
