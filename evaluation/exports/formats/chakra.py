"""For simulators of networks: Chakra execution traces of the simulated step, a file for each device."""

from envs.files.chakra_traces import chakra_traces
from envs.plans.plan import Plan
from envs.simulation.simulator import simulate
from evaluation.exports.written import Written
from graphs.problem import Problem


def write(problem: Problem, plan: Plan) -> Written:
    """Files that end in .0.et, .1.et, ..., as simulators look for them; the plan itself, as it is."""
    traces = chakra_traces(simulate(problem, plan))
    files = {f".{device}.et": trace for device, trace in enumerate(traces)}
    kilobytes = sum(map(len, traces)) / 1e3
    text = f"{len(files)} Chakra execution traces, {kilobytes:,.0f} kB: {', '.join(files)}"
    return Written(text, problem, plan, files=files)
