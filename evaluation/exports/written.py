"""What an export writes, and the plan that this says."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from envs.plans.plan import Plan
from graphs.problem import Problem


@dataclass(frozen=True, eq=False)
class Written:
    """A plan in the words of another program, and as placelab simulates it."""

    text: str
    problem: Problem  # without op groups
    plan: Plan
    notes: tuple[str, ...] = ()  # sentences: what the text takes for granted, and what it does not keep of the plan
    moved: int = 0  # modules with ops that are on other devices than planned
    files: Mapping[str, bytes] = field(default_factory=dict)
    """In place of the text: by what is added to the name of the file to write, such as ".0.et"."""
