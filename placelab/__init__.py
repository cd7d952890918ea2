"""placelab: find, and learn to find, the devices on which a neural network's operations run fastest.

Every verb of the command line is a function of this module, with the same keywords (evaluation/commands/*_verbs.py):

    import placelab
    placed = placelab.place("rnnlm:layers=4,steps=10", cluster="p100x4", placer="annealing:policy=default", budget=500)
    print(placed.timeline.step_seconds, placed.plan.placement)

Graphs, clusters and placers are given as objects or as text: a file, or a spec such as `rnnlm:layers=4`. `parallelize`,
which lets a model run by a plan, is for Python alone. What plans and placers are made of is here by name, too, and is
imported when it is first asked for: `Problem`, `Plan`, `Placer`, `Simulator` and others.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from placelab.packages import check_packages as _check_packages

_check_packages()

# once the packages are known to be ours
from evaluation.commands.bench_verbs import bench, verify  # noqa: E402
from evaluation.commands.calibrating import calibrate  # noqa: E402
from evaluation.commands.exporting import export  # noqa: E402
from evaluation.commands.graph_verbs import capture, fits, place, profile, show, simulate  # noqa: E402
from evaluation.commands.process_run import run  # noqa: E402
from evaluation.commands.run_verbs import cache, compare, evaluate, finetune, list_names, report, train  # noqa: E402
from evaluation.commands.running import parallelize  # noqa: E402
from evaluation.commands.sweeping import sweep  # noqa: E402
from graphs.foundation.errors import DoesNotFitError, InputError  # noqa: E402
from placelab.verbs import main  # noqa: E402

if TYPE_CHECKING:  # as _NOUNS says, for type checkers
    from envs.costs.costs import CostModel, Costs, unit_seconds
    from envs.files.plan_file import load_plan, save_plan
    from envs.objectives import Evaluator, Objective
    from envs.orders import Order
    from envs.pass_orders import PassOrder
    from envs.plans.placer_result import PlacerResult
    from envs.plans.plan import Plan
    from envs.plans.schedule import Schedule
    from envs.prepared_problem import PreparedProblem
    from envs.simulation.simulator import Outcome, Outcomes, Simulator
    from envs.simulation.simulator import simulate as simulate_plan
    from envs.timelines.timeline import Timeline
    from evaluation.benchmark.row_table import Rows
    from evaluation.commands.listing import Listing
    from evaluation.commands.load_placer import load_placer
    from evaluation.comparing.comparison import Comparison
    from evaluation.comparing.memory_needs import MemoryNeeds
    from evaluation.comparing.simulated_plan import SimulatedPlan
    from evaluation.exports.exported_plan import ExportedPlan
    from evaluation.measuring.calibration import Calibration
    from evaluation.measuring.measured_plan import MeasuredPlan
    from evaluation.reporting.profile_report import ProfileReport
    from evaluation.tables.cache_usage import CacheUsage
    from evaluation.tables.graph_summary import GraphSummary
    from evaluation.tables.sweep_table import SweepReport
    from graphs.batch_law import BatchLaw
    from graphs.capture.training_step import training_step
    from graphs.cluster import Cluster, Device
    from graphs.devices.cluster_file import save_cluster
    from graphs.files.load import load_cluster, load_graph, load_suite
    from graphs.formats.graph_file import save_graph
    from graphs.op_graph import OpGraph, Phase
    from graphs.op_groups.grouping import tie_ops
    from graphs.problem import Problem
    from graphs.units import Units
    from placers.contract.placer import Placer
    from training.runs.seeds import Trained

_NOUNS = {  # name -> where it is, and what it is called there if not the same
    "BatchLaw": "graphs.batch_law",
    "CacheUsage": "evaluation.tables.cache_usage",
    "Calibration": "evaluation.measuring.calibration",
    "Cluster": "graphs.cluster",
    "Comparison": "evaluation.comparing.comparison",
    "CostModel": "envs.costs.costs",
    "Costs": "envs.costs.costs",
    "Device": "graphs.cluster",
    "Evaluator": "envs.objectives",
    "ExportedPlan": "evaluation.exports.exported_plan",
    "GraphSummary": "evaluation.tables.graph_summary",
    "Listing": "evaluation.commands.listing",
    "MeasuredPlan": "evaluation.measuring.measured_plan",
    "MemoryNeeds": "evaluation.comparing.memory_needs",
    "Objective": "envs.objectives",
    "OpGraph": "graphs.op_graph",
    "Order": "envs.orders",
    "Outcome": "envs.simulation.simulator",
    "Outcomes": "envs.simulation.simulator",
    "PassOrder": "envs.pass_orders",
    "Phase": "graphs.op_graph",
    "Placer": "placers.contract.placer",
    "PlacerResult": "envs.plans.placer_result",
    "Plan": "envs.plans.plan",
    "PreparedProblem": "envs.prepared_problem",
    "Problem": "graphs.problem",
    "ProfileReport": "evaluation.reporting.profile_report",
    "Rows": "evaluation.benchmark.row_table",
    "Schedule": "envs.plans.schedule",
    "SimulatedPlan": "evaluation.comparing.simulated_plan",
    "Simulator": "envs.simulation.simulator",
    "SweepReport": "evaluation.tables.sweep_table",
    "Timeline": "envs.timelines.timeline",
    "Trained": "training.runs.seeds",
    "Units": "graphs.units",
    "load_cluster": "graphs.files.load",
    "load_graph": "graphs.files.load",
    "load_placer": "evaluation.commands.load_placer",
    "load_plan": "envs.files.plan_file",
    "load_suite": "graphs.files.load",
    "save_cluster": "graphs.devices.cluster_file",
    "save_graph": "graphs.formats.graph_file",
    "save_plan": "envs.files.plan_file",
    "simulate_plan": "envs.simulation.simulator:simulate",
    "tie_ops": "graphs.op_groups.grouping",
    "training_step": "graphs.capture.training_step",
    "unit_seconds": "envs.costs.costs",
}

__all__ = [
    "BatchLaw",
    "CacheUsage",
    "Calibration",
    "Cluster",
    "Comparison",
    "CostModel",
    "Costs",
    "Device",
    "DoesNotFitError",
    "Evaluator",
    "ExportedPlan",
    "GraphSummary",
    "InputError",
    "Listing",
    "MeasuredPlan",
    "MemoryNeeds",
    "Objective",
    "OpGraph",
    "Order",
    "Outcome",
    "Outcomes",
    "PassOrder",
    "Phase",
    "Placer",
    "PlacerResult",
    "Plan",
    "PreparedProblem",
    "Problem",
    "ProfileReport",
    "Rows",
    "Schedule",
    "SimulatedPlan",
    "Simulator",
    "SweepReport",
    "Timeline",
    "Trained",
    "Units",
    "bench",
    "cache",
    "calibrate",
    "capture",
    "compare",
    "evaluate",
    "export",
    "finetune",
    "fits",
    "list_names",
    "load_cluster",
    "load_graph",
    "load_placer",
    "load_plan",
    "load_suite",
    "main",
    "parallelize",
    "place",
    "profile",
    "report",
    "run",
    "save_cluster",
    "save_graph",
    "save_plan",
    "show",
    "simulate",
    "simulate_plan",
    "sweep",
    "tie_ops",
    "train",
    "training_step",
    "unit_seconds",
    "verify",
]


if not TYPE_CHECKING:  # which would take any name for one that is there

    def __getattr__(name: str) -> object:
        if name not in _NOUNS:
            raise AttributeError(f"module 'placelab' has no attribute {name!r}")
        module, _, there = _NOUNS[name].partition(":")
        value: object = getattr(_import_module(module), there or name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
