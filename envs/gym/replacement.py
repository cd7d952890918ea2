"""Replacement's environment: a model runs, something has changed, and each unit may stay or go elsewhere.

The episode is Placeto's (`envs.gym.iterative`), from the placement that keeps all that can stay; what it is paid by is
a step and the share of moving that the steps until the next change pay for (`envs.replacement.running`).
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

from envs.gym.iterative import PlacetoEnv
from envs.gym.observations import Progress
from envs.gym.problem_sampler import Keywords
from envs.replacement.evaluator import replacement_of
from envs.rewards import LONGEST_SECONDS, PENALTY_PER_GB
from envs.simulation.simulator import Outcome
from graphs.problem import Problem


class ReplacementEnv(PlacetoEnv):
    """One episode visits each unit of a running model once; the action is its device, which may be that where it runs.

    - `problems`: One problem or several with the objective `replacement` and equally many devices, such as the changes
      of streams (`evaluation.benchmark.streams`); each reset draws one.
    - `reward`: "improvement", "terminal", "square_root", or one of your own, "my.py:build" (see `envs.rewards`); the
      seconds that it reads are those of the objective.
    - `start`: The placement before the first step: "kept", where all that can stay does, or one of Placeto's.
    - `visits`, `memory_gib`, `penalty_per_gb`, `longest_seconds`: As Placeto's.
    - `settings`: The keywords that all environments take: see `envs.gym.problem_sampler.EnvironmentSettings`. With
      `graph` and `cluster` the plan that runs is named by `objective="replacement:plan=FILE"`. Observations have the
      features "replacement" unless `features` names others. Problems are run as they say.

    Raises InputError for wrong arguments, and for a problem of which nothing is known to run. `info` carries `problem`,
    `objective_seconds`, `step_seconds`, `moving_seconds` and `moved_bytes` of all that moves, `peak_bytes` (devices,)
    and `fits`.
    """

    of_running: ClassVar[bool] = True

    def __init__(
        self, problems: Problem | Sequence[Problem] | None = None, *, reward: str = "improvement",
        start: str = "kept", visits: str = "topological", memory_gib: float | None = None,
        penalty_per_gb: float = PENALTY_PER_GB, longest_seconds: float = LONGEST_SECONDS, **settings: Unpack[Keywords],
    ) -> None:  # fmt: skip
        settings.setdefault("runtime", "")
        settings.setdefault("features", "replacement")
        super().__init__(
            problems, reward=reward, start=start, visits=visits, memory_gib=memory_gib, penalty_per_gb=penalty_per_gb,
            longest_seconds=longest_seconds, **settings,
        )  # fmt: skip

    def shown(self, progress: Progress, outcome: Outcome) -> tuple[Any, dict[str, Any]]:
        """Observation and info of an episode whose placement costs `outcome` by the objective."""
        observation, info = super().shown(progress, outcome)
        evaluator = replacement_of(progress.prepared.evaluator, progress.prepared.problem)
        seconds, moved_bytes = (float(each[0]) for each in evaluator.moves(progress.placement[None]))
        info |= {
            "objective_seconds": outcome.step_seconds, "step_seconds": outcome.step_seconds - seconds,
            "moving_seconds": seconds * evaluator.running.steps, "moved_bytes": moved_bytes,
        }  # fmt: skip
        return observation, info
