"""The policy of whole plans: for each kind of decision a small network that rates the actions that are possible."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from envs.pipelines.construction import Decision
from envs.pipelines.pipeline import LayerPipeline
from envs.plans.plan import Plan
from graphs.foundation.errors import InputError
from graphs.op_graph import Floats
from graphs.problem import Problem
from placers.learned.finite import check_outputs
from placers.learned.plan_policy import Label, PlanPolicy
from placers.learned.settings import FEW_SAMPLES, Settings, WholePlans
from placers.learned.shapes import Size
from placers.learned.whole_plans.chain_view import ProblemChain
from placers.learned.whole_plans.decision_features import FEATURES, WIDTH, Choice, ProblemContext
from placers.learned.whole_plans.label_search import best_known
from placers.learned.whole_plans.outlook import EqualStageEstimates

KIND = "whole_plans"
DRAWN = 8  # pipelines of which the best by formula is taken, where none is simulated; ours
MARGIN = 0.95  # of the memory is what a pipeline may fill by the formula; ours
TRIES = 16  # pipelines that are drawn until one seems to fit; ours
REFUSED = 3.0  # steps on the fastest device: what a pipeline counts that only the check of its plan refuses


class WholePlansShape(msgspec.Struct, frozen=True):
    """The knobs of its spec."""

    hidden: Size = 64


@dataclass(frozen=True)
class Taken:
    """A decision that was made."""

    choice: Choice
    place: int  # of the action that was taken, among those of the choice


class WholePlansPolicy(PlanPolicy[ProblemContext, Taken]):
    """A distribution over the actions of each decision of a pipeline's construction."""

    kind: ClassVar[str] = KIND
    shape_type: ClassVar[type[msgspec.Struct]] = WholePlansShape
    decoder_features: ClassVar[tuple[str, ...]] = FEATURES

    def __init__(self, shape: WholePlansShape) -> None:
        super().__init__()
        hidden = shape.hidden
        self.rating = nn.ModuleList(
            nn.Sequential(
                nn.Linear(WIDTH[decision], hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                nn.Linear(hidden, 1),
            )
            for decision in Decision
        )  # fmt: skip

    def view(self, problem: Problem) -> ProblemContext:
        """As `PlanPolicy.view`."""
        view = ProblemChain.of(problem)
        return ProblemContext(view, EqualStageEstimates(view))

    @torch.no_grad()
    def logits(self, choice: Choice) -> Floats:
        """(actions,) of one choice. Raises NotFiniteError for weights by which nothing can be computed."""
        rows = torch.from_numpy(choice.rows.astype(np.float32))
        scores = self.rating[choice.decision](rows)[:, 0]
        check_outputs(scores)
        found: Floats = scores.double().numpy()
        return found

    def draw(self, seeing: ProblemContext, rng: np.random.Generator | None = None) -> tuple[LayerPipeline, list[Taken]]:
        """As `PlanPolicy.draw`."""
        construction, taken = seeing.view.construction(), list[Taken]()
        while not construction.ended:
            choice = seeing.choice(construction)
            place = 0
            if len(choice.actions) > 1:
                logits = self.logits(choice)
                if rng is not None:
                    logits = logits + rng.gumbel(size=len(logits))
                place = int(logits.argmax())
                taken.append(Taken(choice, place))
            construction.take(int(choice.actions[place]))
        return construction.pipeline, taken

    def follow(self, seeing: ProblemContext, pipeline: LayerPipeline) -> list[Taken]:
        """The decisions that make a pipeline, those that the policy would not ask for left out.

        Devices of a stage come in an order in which it may choose them, if there is one. Raises InputError for a
        pipeline that cannot be made.
        """
        construction, taken = seeing.view.construction(), list[Taken]()
        while not construction.ended:
            choice, leading = seeing.choice(construction), construction.leading_to(pipeline)
            places = np.flatnonzero(np.isin(choice.actions, leading)).tolist()
            if places and len(choice.actions) > 1:
                taken.append(Taken(choice, places[0]))
            construction.take(int(choice.actions[places[0]]) if places else leading[0])
        construction.towards(pipeline)  # which says so if another one was made
        return taken

    def promising(self, view: ProblemContext, count: int, seed: int) -> list[LayerPipeline]:
        """As `PlanPolicy.promising`: the best by formula first, of at least `DRAWN` candidates."""
        drawn = list(islice(self.candidates(view, seed), max(count, DRAWN)))

        def merit(pipeline: LayerPipeline) -> tuple[bool, float]:
            seconds, full = view.view.formula.estimates(pipeline)
            return full > MARGIN, seconds

        return sorted(drawn, key=merit)[:count]

    def candidates(self, seeing: ProblemContext, seed: int) -> Iterator[LayerPipeline]:
        """Pipelines without end, the most likely first, then drawn ones; each seems to fit, if one of some tries does.

        One that seems not to fit, by formula, computes stages again; if that does not suffice, others are drawn.
        """
        rng, formula = np.random.default_rng(seed), seeing.view.formula
        is_first = True
        while True:
            tried = list[tuple[float, LayerPipeline]]()
            while len(tried) < TRIES and not (tried and tried[-1][0] <= MARGIN):
                one = formula.made_to_fit(self.draw(seeing, None if is_first else rng)[0], MARGIN)
                tried.append((formula.estimates(one)[1], one))
                is_first = False
            yield min(tried, key=lambda each: max(each[0], MARGIN))[1]

    def judge(self, view: ProblemContext, pipeline: LayerPipeline) -> tuple[float, bool]:
        """As `PlanPolicy.judge`, at the grain of stages."""
        try:
            outcome = view.view.pipelines.outcome(view.view.formula.made_to_fit(pipeline, MARGIN))
        except InputError:  # what only the plan's check finds
            return REFUSED * view.view.step, False
        return outcome.step_seconds, outcome.fits

    def seconds_alone(self, view: ProblemContext) -> float:
        """As `PlanPolicy.seconds_alone`."""
        return view.view.step

    def plan(self, view: ProblemContext, pipeline: LayerPipeline) -> Plan:
        """As `PlanPolicy.plan`."""
        return view.view.formula.made_to_fit(pipeline, MARGIN).plan(view.view.problem, view.view.pipelines.layers)

    @classmethod
    def search(cls, problem: Problem, simulations: int) -> Label:
        """As `PlanPolicy.search`."""
        view = ProblemChain.of(problem)
        pipeline, _ = best_known(view, simulations, seed=0)
        return () if pipeline is None else tuple(view.construction().towards(pipeline))

    def decisions_of(self, view: ProblemContext, label: Label) -> list[Taken]:
        """As `PlanPolicy.decisions_of`."""
        construction = view.view.construction()
        for action in label:
            construction.take(action)
        return self.follow(view, construction.pipeline)

    def fine_tuning(self, problem: Problem, simulations: int) -> Settings:  # noqa: ARG002 - for all problems alike
        """Without labels but the best pipeline so far."""
        samples = FEW_SAMPLES // 2
        updates = max(1, simulations // samples)
        return Settings(whole_plans=WholePlans(imitation=0, updates=updates, samples=samples, problems_per_update=1))

    def score(self, decisions: Sequence[Taken]) -> tuple[Tensor, Tensor]:
        """As `PlanPolicy.score`."""
        log_probability, entropy = torch.zeros(len(decisions)), torch.zeros(len(decisions))
        for kind in Decision:
            of_kind = [number for number, each in enumerate(decisions) if each.choice.decision == kind]
            if not of_kind:
                continue
            several = [decisions[number] for number in of_kind]
            most = max(len(each.choice.actions) for each in several)
            rows = np.zeros((len(several), most, WIDTH[kind]), np.float32)
            exists = torch.zeros(len(several), most, dtype=torch.bool)
            for number, each in enumerate(several):
                rows[number, : len(each.choice.actions)] = each.choice.rows
                exists[number, : len(each.choice.actions)] = True
            logits = self.rating[kind](torch.from_numpy(rows))[..., 0].masked_fill(~exists, -1e9)
            table = logits.log_softmax(-1)
            places = torch.tensor([each.place for each in several])
            log_probability[of_kind] = table.gather(1, places[:, None])[:, 0]
            entropy[of_kind] = -(table.exp() * table).masked_fill(~exists, 0.0).sum(-1)
        return log_probability, entropy
