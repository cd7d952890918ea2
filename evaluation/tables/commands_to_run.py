"""The lines that run a plan: in the user's own loop, in a process per device, or by another program."""

import shlex
from pathlib import Path

from envs.expansion.layout import Layout
from envs.plans.plan import Plan
from graphs.formats.graph_files import is_graph_file
from graphs.problem import Problem


def commands_to_run(
    problem: Problem, plan: Plan, graph: str, cluster: str, path: Path | str | None, batch: int | None = None, *,
    fits: bool = True,
) -> tuple[str, ...]:  # fmt: skip
    """What to type for a plan of a graph and a cluster, each as `place` was given it, and written to a path.

    `batch` is the number of samples that was given, if one was. Without a path the first line says which flag writes
    one. A plan that leaves all on one device needs nothing, and one that does not fit is not to be run.
    """
    if not fits:
        return ()
    if len(plan.used) == 1 and plan.is_placement:
        device = problem.cluster.devices[min(plan.used)].name
        return (f"All of it runs on {device}: {'train' if problem.graph.is_training else 'run it'} there as ever.",)
    file = str(path or f"{problem.graph.name.partition(':')[0]}.plan.json")
    on = f" --cluster {shlex.quote(cluster)}" if cluster else ""
    on += f" --batch {batch}" if batch is not None else ""
    on += "" if problem.graph.is_training else " --no-training"
    on += " --allow-code" if isinstance(plan.order, str) and ".py:" in plan.order else ""
    given = f"{shlex.quote(graph)} {shlex.quote(file)}{on}"
    lines: list[str] = [] if path is not None else [f"# this command with --out {shlex.quote(file)} writes the plan"]
    if is_graph_file(graph):
        return (*lines, f"placelab simulate {given} --gantt step.html  # to run it, give the model, not its graph")
    if plan.is_placement and problem.graph.is_training:
        devices = [f"cuda:{index}" for index in range(len(problem.cluster))]
        where = f'graph="{graph}"' + (f', cluster="{cluster}"' if cluster else "")
        where += "" if batch is None else f", batch={batch}"
        lines.append(f'model = placelab.parallelize(model, "{file}", devices={devices}, {where})  # in your own loop')
    if not problem.graph.captured_in and _is_run(problem, plan):
        lines.append(f"placelab run {given} --check  # some steps in a process per device, compared with one")
    if (to := _format(problem, plan)) is not None:
        rounded = "  # rounded to whole modules, where that can be" if to == "torchtitan" else ""
        lines.append(f"placelab export {given} --to {to}{rounded}")
    return tuple(lines)


def _is_run(problem: Problem, plan: Plan) -> bool:
    """Whether processes run it. What they refuse, and why, is said by `envs.running.ways`, which imports PyTorch."""
    schedule, stages = plan.schedule, Layout(problem, plan).stage_devices
    if not problem.graph.is_training or schedule.update == "micro_batch":
        return False
    if str(schedule.order).startswith("zb_") and problem.graph.frozen.any():
        return False  # a stage may have no gradients of weights to run apart
    if plan.split and plan.has_shares:
        return False
    if len(stages) == 1:
        again = "block" if schedule.zero and len(stages[0]) > 1 else "late"
    elif plan.split or schedule.offload or schedule.zero > 1 or schedule.shares or len(set(map(len, stages))) > 1:
        return False
    else:
        again = "late"
    return not schedule.recompute or schedule.recompute_at == again


def _format(problem: Problem, plan: Plan) -> str | None:
    """What most would give the plan to; which plans it takes is the table of docs/running.md."""
    schedule = plan.schedule
    if plan.is_placement:
        return None if problem.graph.is_training else "device_map"
    if not problem.graph.is_training:
        of_one = all(len(of_op) == 1 for of_op in plan.devices)
        return "device_map" if of_one and schedule.micro_batches == 1 else "chakra --out trace"
    if plan.has_shares:
        return "chakra --out trace"
    return "fsdp" if schedule.zero and not schedule.stages and not plan.split else "torchtitan"
