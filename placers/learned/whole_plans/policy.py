"""The policy of whole plans: for each kind of decision a small network that rates the actions that are possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from envs.pipelines.construction import Decision
from envs.pipelines.pipeline import LayerPipeline
from graphs.op_graph import Floats
from graphs.problem import Problem
from placers.learned.policy import SavedPolicy
from placers.learned.shapes import Size
from placers.learned.whole_plans.chain_view import ChainView
from placers.learned.whole_plans.decision_features import FEATURES, WIDTH, Choice, Seeing
from placers.learned.whole_plans.outlook import Outlook

KIND = "whole_plans"


class Shape(msgspec.Struct, frozen=True):
    """The knobs of its spec."""

    hidden: Size = 64


@dataclass(frozen=True)
class Taken:
    """A decision that was made."""

    choice: Choice
    place: int  # of the action that was taken, among those of the choice


class WholePlansPolicy(SavedPolicy):
    """A distribution over the actions of each decision of a pipeline's construction."""

    kind: ClassVar[str] = KIND
    shape_type: ClassVar[type[msgspec.Struct]] = Shape
    decoder_features: ClassVar[tuple[str, ...]] = FEATURES

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        hidden = shape.hidden
        self.rating = nn.ModuleList(
            nn.Sequential(
                nn.Linear(WIDTH[decision], hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                nn.Linear(hidden, 1),
            )
            for decision in Decision
        )  # fmt: skip

    def see(self, problem: Problem) -> Seeing:
        """What it sees of a problem, made once. Raises InputError if only op placements make sense for it."""
        view = ChainView.of(problem)
        return Seeing(view, Outlook(view))

    @torch.no_grad()
    def logits(self, choice: Choice) -> Floats:
        """(actions,) of one choice."""
        rows = torch.from_numpy(choice.rows.astype(np.float32))
        found: Floats = self.rating[choice.decision](rows)[:, 0].double().numpy()
        return found

    def draw(self, seeing: Seeing, rng: np.random.Generator | None = None) -> tuple[LayerPipeline, list[Taken]]:
        """A pipeline, decision by decision: the most likely actions, or drawn ones, and what was decided."""
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

    def follow(self, seeing: Seeing, pipeline: LayerPipeline) -> list[Taken]:
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

    def score(self, decisions: Sequence[Taken]) -> tuple[Tensor, Tensor]:
        """(decisions,) log-probability of each, and entropy in nats; differentiable."""
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
