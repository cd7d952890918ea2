"""PipelinePlan: an environment whose episodes construct plans that are pipelines (ours).

The state is the chain of layers, the devices and links, and what is decided so far. First come the number of
micro-batches and the order of passes, then stage by stage its devices, one by one, where it ends, and whether it is
computed again (`envs.pipelines.construction`). An episode ends when all layers are in a stage, with the reward for what
the engine says of the whole plan. Single devices, data parallelism, the plans of GPipe and DAPPLE, and interleaved or
V-shaped pipelines are among the plans that can be made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack, get_args

import gymnasium as gym
import numpy as np

from envs.gym.environment import RENDERING
from envs.gym.pipeline_observations import PipelineObserver
from envs.gym.pipeline_problem import Grain, PipelineProblem
from envs.gym.problem_sampler import ProblemKeywords, ProblemSampler, ProblemSettings
from envs.pipelines.construction import Actions, Construction
from envs.pipelines.pipeline import LayerPipeline
from envs.plans.plan import Plan
from envs.plans.schedule import Sharing, pass_order_of
from envs.prepared_problem import PreparedProblem
from envs.rewards import Penalty, RewardFunction, load_reward
from envs.simulation.simulator import Outcome, simulate
from graphs.foundation.errors import InputError, UserCodeError
from graphs.op_graph import Bools
from graphs.problem import Problem

MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
PASS_ORDERS = ("early_backward_a", "early_backward_b", "gpipe", "zb_h1", "interleaved", "zb_v")


@dataclass(eq=False)
class PipelineEpisode:
    """One episode: `take` decides one thing. Before the last of them everything is on the fastest device."""

    index: int  # of the problem among the environment's, or -1
    problem: PipelineProblem
    construction: Construction
    reward: RewardFunction
    outcome: Outcome  # of the plan as it stands
    refused: str = ""  # why no plan came of it
    paid: float = 0.0  # the reward of the latest step

    @property
    def ended(self) -> bool:
        """Whether there is a plan, or none will come of it."""
        return self.construction.ended or bool(self.refused)

    @property
    def plan(self) -> Plan:
        """The plan as it stands."""
        if self.construction.ended and not self.refused:
            return self.construction.pipeline.plan(self.problem.problem, self.problem.layers)
        return self.problem.alone

    def take(self, action: int) -> None:
        """Decide one thing; `paid` is then its reward. Raises InputError if the episode has ended.

        An action that is not possible, or a pipeline that is no plan, ends the episode: it takes infinitely long and
        does not fit.
        """
        if self.ended:
            raise InputError("the episode has ended; call reset")
        before = self.outcome
        try:
            self.construction.take(action)
            if self.construction.ended:
                self.outcome = self.problem.outcome(self.construction.pipeline)
        except UserCodeError:
            raise
        except InputError as error:
            self.refused = str(error)
            self.outcome = Outcome(np.inf, np.full(len(before.peak_bytes), np.inf), fits=False)
        smallest = float(self.problem.problem.cluster.memory_bytes.min())
        self.paid = self.reward(before, self.outcome, True, Penalty(smallest)) if self.ended else 0.0

    def render(self, mode: str) -> Any:
        """The Gantt chart of the plan as it stands, at the grain of ops, as text ("ansi") or pixels."""
        timeline = simulate(self.problem.problem, self.plan)
        return timeline.draw() if mode == "ansi" else timeline.image()


class PipelinePlanEnv(gym.Env[Any, Any]):
    """One episode makes one plan for one problem; `action_masks` says which actions are possible now.

    Actions have the same numbers for all problems: see `envs.pipelines.construction.Actions`, and `actions.name`.
    Observations are padded arrays (`envs.gym.pipeline_observations`), with the mask among them. An action that is not
    possible ends the episode as a plan that does not fit, and `info["refused"]` says why.

    - `problems`: One problem or several, of any sizes and on any numbers of devices; each reset draws one.
    - `reward`: "speedup", "square_root", "terminal", "improvement", or one of your own, "my.py:build" (see
      `envs.rewards`); 0 before the last step. The plan before it has everything on the fastest device.
    - `layers`: Units of a graph are joined until at most this many layers are left; observations are padded to them.
    - `micro_batches`: The numbers of micro-batches to choose from; those that divide the samples of a step are.
    - `pass_orders`: The orders of passes to choose from (`envs.pass_orders`).
    - `sharing`: Whether replicas "split" each micro-batch, or take whole ones in "turns".
    - `grain`: Plans are timed at the grain of "stages", with a hundred times fewer ops, a few percent off in time and
      more in memory, or of "ops", as `simulate` does (`envs.pipelines.grain.layer_grain`). A plan that is an op
      placement is timed as it is.
    - `max_devices`: Pad observations to this number of devices; to those of the largest cluster unless given.
    - `settings`: The keywords that all environments take, `graph`, `cluster`, ...: see
      `envs.gym.problem_sampler.ProblemSettings`.

    Raises InputError for wrong arguments. `info` carries `problem`, `decision`, and `step_seconds`, `peak_bytes`
    (max_devices,), 0 where there is none, and `fits` of the plan as it stands.
    """

    metadata: dict[str, Any] = RENDERING
    episode: PipelineEpisode

    def __init__(
        self, problems: Problem | Sequence[Problem] | None = None, *, reward: str = "speedup", layers: int = 32,
        micro_batches: Sequence[int] = MICRO_BATCHES, pass_orders: Sequence[str] = PASS_ORDERS,
        sharing: Sharing = "split", grain: Grain = "stages", max_devices: int | None = None,
        **settings: Unpack[ProblemKeywords],
    ) -> None:  # fmt: skip
        self._reward, self._sharing, self._grain = load_reward(reward), sharing, grain
        for what, given, known in (("sharing", sharing, Sharing), ("grain", grain, Grain)):
            if given not in get_args(known):
                raise InputError(f"{what} is {given!r}; expected {' or '.join(map(repr, get_args(known)))}")
        for what, count in [("layers", layers), *(("micro_batches", each) for each in micro_batches or [0])]:
            if count < 1:
                raise InputError(f"{what} is {count}; expected 1 or more")
        orders = tuple(pass_order_of(order).loaded() for order in pass_orders)
        self._sampler = ProblemSampler(problems, ProblemSettings(**settings), measured=False)
        most = self._sampler.devices
        if max_devices is not None and max_devices < most:
            raise InputError(
                f"max_devices is {max_devices}, but the largest cluster has {most} devices; make it that or more"
            )
        self.actions = Actions(tuple(micro_batches), orders, max_devices or most, layers)
        self._observer = PipelineObserver(self.actions)
        self.problems = [self._prepared(each) for each in self._sampler.problems]
        self.render_mode = settings.get("render_mode")
        self.observation_space = self._observer.space
        self.action_space = gym.spaces.Discrete(len(self.actions))

    @property
    def plan(self) -> Plan:
        """The plan as it stands: everything on the fastest device before the episode has ended."""
        return self.episode.plan

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; options may name its problem by {"problem": index} or {"graph": graph}."""
        super().reset(seed=seed)
        self.episode = self.begin(self.np_random, options)
        return self.shown(self.episode)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Decide one thing."""
        if not self.action_space.contains(action):
            raise InputError(f"the action is {action!r}; expected a number from 0 to {len(self.actions) - 1}")
        self.episode.take(int(action))
        observation, info = self.shown(self.episode)
        return observation, self.episode.paid, self.episode.ended, False, info

    def begin(self, rng: np.random.Generator, options: Mapping[str, Any] | None) -> PipelineEpisode:
        """An episode that the caller steps; the options are those of a reset."""
        index, prepared = self._sampler.choose(rng, options)
        problem = self.problems[index] if index >= 0 else self._prepared(prepared)
        construction = problem.construction(self.actions, self._sharing)
        if not construction.legal().any():
            raise InputError(
                f"no pipeline can be made of the {len(problem.layers)} layers of {problem.problem.graph.name!r}, whose "
                f"step has {problem.problem.graph.samples} samples, with {self.actions.micro_batches} micro-batches "
                f"and the orders {', '.join(map(str, self.actions.orders))}; add one micro-batch and early_backward_a"
            )
        return PipelineEpisode(index, problem, construction, self._reward, problem.start)

    def shown(self, episode: PipelineEpisode) -> tuple[Any, dict[str, Any]]:
        """Observation and info of an episode."""
        outcome = episode.outcome
        peaks = np.zeros(self.actions.devices)
        peaks[: len(outcome.peak_bytes)] = outcome.peak_bytes
        info = {
            "problem": episode.problem.problem.name, "decision": episode.construction.decision.name.lower(),
            "step_seconds": outcome.step_seconds, "peak_bytes": peaks, "fits": outcome.fits,
        }  # fmt: skip
        if episode.refused:
            info["refused"] = episode.refused
        return self._observer.observe(episode.problem, episode.construction), info

    def action_masks(self) -> Bools:
        """(actions,) what is possible, and leaves room for weights if anything does (sb3-contrib's convention)."""
        return self.episode.problem.with_room(self.episode.construction)

    def actions_of(self, pipeline: LayerPipeline, problem: int = 0) -> list[int]:
        """The actions of an episode that makes a pipeline of one of the environment's problems.

        Raises InputError if it is not among those that can be made, of these layers, devices and choices.
        """
        return self.problems[problem].construction(self.actions, self._sharing).towards(pipeline)

    def render(self) -> Any:
        """The Gantt chart of the plan as it stands, in the form of the render mode."""
        return None if self.render_mode is None else self.episode.render(self.render_mode)

    def _prepared(self, prepared: PreparedProblem) -> PipelineProblem:
        return PipelineProblem(prepared, self.actions.layers, self._grain)
