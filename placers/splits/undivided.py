"""Problems of which nothing can be divided: all goes to one device, and a note says why."""

from collections.abc import Sequence
from dataclasses import replace

from envs.plans.placer_result import PlacerResult
from graphs.descriptions.descriptions import descriptions_of
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.contract.placer import Placer
from placers.contract.whole_plans import accelerators, why_placements_only


def first_devices(problem: Problem, placer: str, count: int) -> tuple[int, ...]:
    """The first `count` accelerators; 0 for all. Raises InputError if there are fewer."""
    devices = accelerators(problem.cluster)
    if not 0 <= count <= len(devices):
        raise InputError(
            f"{placer}: devices is {count}; expected 0 for all, or up to the {len(devices)} of cluster "
            f"{problem.cluster.name!r}"
        )
    return devices[:count] if count else devices


def why_undivided(problem: Problem, devices: Sequence[int]) -> str:
    """The reason why no op of a problem can be divided over devices; empty if there is none."""
    if reason := why_placements_only(problem):
        return reason
    graph = problem.graph
    if len(devices) < 2:
        return "there is no other to divide ops with"
    if len(graph.edge_bytes) or len(graph.transfer_bytes):
        return f"graph {graph.name!r} says what transfers move, and not which part of it each device needs"
    if not any(descriptions_of(graph)):
        return (
            f"graph {graph.name!r} does not say what its ops compute; give the model that it is of, or capture it again"
        )
    return ""


def on_one_device(problem: Problem, reason: str, placer: str, seed: int, budget: int) -> PlacerResult:
    """Everything on the fastest device that holds it, as `single_device`, with the reason as a note."""
    single: Placer = by_name.build("placers", "single_device")
    found = single.place(problem, seed=seed, budget=budget)
    note = f"{placer.partition(':')[0]}: all on one device, since {reason}."
    return replace(found, placer=placer, notes=(*found.notes, note))
