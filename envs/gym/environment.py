"""PlacementEnv: what Placeto's environment and GDP's have in common."""

from collections.abc import Sequence
from typing import Any, ClassVar

import gymnasium as gym

from envs.gym.observations import Progress, find_observer
from envs.gym.problem_sampler import EnvironmentSettings, UnitSampler
from envs.simulation.simulator import Outcome
from graphs.op_graph import Ints
from graphs.problem import Problem

RENDERING: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}  # gymnasium's metadata


class PlacementEnv(gym.Env[Any, Any]):
    """An environment over problems; each episode places one of them."""

    metadata: dict[str, Any] = RENDERING
    of_running: ClassVar[bool] = False  # whether its problems are those of placing again what runs
    progress: Progress  # where the episode stands; steps change it

    def __init__(self, problems: Problem | Sequence[Problem] | None, settings: EnvironmentSettings) -> None:
        self._sampler = UnitSampler(problems, settings, of_running=self.of_running)
        self._observer = find_observer(self._sampler, settings)
        self.problems = self._sampler.problems  # by the id that observations show
        self.max_units = self._sampler.max_units
        self.render_mode = settings.render_mode
        self.observation_space = self._observer.space

    @property
    def placement(self) -> Ints:
        """(units,) the device of each unit as it stands."""
        return self.progress.placement.copy()

    def shown(self, progress: Progress, outcome: Outcome) -> tuple[Any, dict[str, Any]]:
        """Observation and info of an episode whose placement costs `outcome`."""
        info = {"step_seconds": outcome.step_seconds, "peak_bytes": outcome.peak_bytes, "fits": outcome.fits}
        return self._observer.observe(progress), {"problem": progress.prepared.problem.name, **info}

    def render(self) -> Any:
        """The current placement's Gantt chart, in the form of the render mode."""
        return render(self.progress, self.render_mode)


def render(progress: Progress, mode: str | None) -> Any:
    """The Gantt chart of an episode's placement, as text or pixels; None without a mode."""
    if mode is None:
        return None
    timeline = progress.prepared.simulator.timeline(progress.placement)
    return timeline.draw() if mode == "ansi" else timeline.image()
