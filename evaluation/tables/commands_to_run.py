"""The lines that run a plan: in the user's own loop, in a process per device, or by another program."""

import shlex
from pathlib import Path

from envs.expansion.layout import Layout
from envs.plans.placer_result import PlacerResult
from envs.plans.plan import Plan
from envs.running.plan_rules import is_run
from envs.simulation.simulator import simulate
from evaluation.records.formatting import seconds
from graphs.formats.graph_files import is_graph_file
from graphs.problem import Problem

CHECK = "--check  # some steps in a process per device, compared with one"


def commands_to_run(
    problem: Problem, found: PlacerResult, graph: str, cluster: str, path: Path | str | None, batch: int | None = None,
    *, fits: bool = True,
) -> tuple[str, ...]:  # fmt: skip
    """What to type for a plan of a graph and a cluster, each as `place` was given it, and written to a path.

    `batch` is the number of samples that was given, if one was. Without a path the first line says which flag writes
    one. A plan that leaves all on one device needs nothing, and one that does not fit is not to be run. Of a plan that
    no processes run the last lines are those of the best one that they run, if the search that `found` it knows one.
    """
    plan = found.plan
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
    if not problem.graph.captured_in and is_run(problem, plan):
        lines.append(f"placelab run {given} {CHECK}")
    if (copies := _copies(problem, plan)) > 1:
        shares = f" ({':'.join(map(str, plan.schedule.shares[0]))})" if plan.has_shares else ""
        lines.append(
            f"# each device has the whole model: start it {copies} times, each for its part of a batch{shares};"
        )
        lines.append("# programs for inference take each copy as a model on one device, which needs no plan")
    for to, remark in _formats(problem, plan).items():
        lines.append(f"placelab export {given} --to {to}{f'  # {remark}' if remark else ''}")
    if found.runnable is not None and not problem.graph.captured_in:
        other = f"{file.removesuffix('.plan.json')}.run.plan.json"
        step = seconds(simulate(problem, found.runnable).step_seconds)
        lines.append("# no processes run this plan yet; of those that were compared and that they run the best takes")
        lines.append(f"# {step} a step: this command with --plans run --out {shlex.quote(other)} writes it")
        lines.append(f"placelab run {shlex.quote(graph)} {shlex.quote(other)}{on} {CHECK}")
    return tuple(lines)


def _copies(problem: Problem, plan: Plan) -> int:
    """On how many devices a forward pass runs whole, each with a part of the batch; 0 for other plans."""
    stages = Layout(problem, plan).stage_devices
    if problem.graph.is_training or plan.split or len(stages) > 1:
        return 0
    return len(stages[0])


def _formats(problem: Problem, plan: Plan) -> dict[str, str]:
    """What most would give the plan to, with a remark; which plans each takes is the table of docs/running.md."""
    schedule = plan.schedule
    if plan.is_placement and problem.graph.is_training:
        return {}
    simulators = {"chakra --out trace": "for simulators of networks"}
    if not problem.graph.is_training:
        return _for_inference(problem, plan) or simulators
    if plan.has_shares:
        return simulators
    if schedule.zero and not schedule.stages and not plan.split:
        return {"fsdp": ""}
    return {"torchtitan": "rounded to whole modules, where that can be"}


def _for_inference(problem: Problem, plan: Plan) -> dict[str, str]:
    """Programs for inference, which take one device for each op. Those of layers ask for equal ones, in a row."""
    layers = "of models whose layers are equal and in a row"
    if plan.split or any(len(of_op) > 1 for of_op in plan.devices):
        return {}
    stages = Layout(problem, plan).stage_devices
    no_cpu = all(problem.cluster.devices[device].kind != "cpu" for device in plan.used)
    found = {"device_map": "for accelerate, which runs one batch at a time"} if plan.schedule.micro_batches == 1 else {}
    found |= {"vllm": layers} if no_cpu and (plan.is_placement or len(set(stages)) == len(stages)) else {}
    return found | ({"llama_cpp": layers} if plan.is_placement else {})
