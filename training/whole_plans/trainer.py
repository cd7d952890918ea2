"""WholePlansTrainer: labels, imitation of these, then REINFORCE (Williams 1992) on simulated steps, by a baseline.

Random numbers follow from the seed and what is done, so that a run that is resumed ends as if it had never stopped. The
baseline of a sample is the mean of its problem's samples, as in PPO here (`training.ppo`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from envs.pipelines.pipeline import LayerPipeline
from graphs.foundation.errors import InputError
from graphs.op_graph import Bools, Floats
from placers.learned.whole_plans.decision_features import Seeing
from placers.learned.whole_plans.filled import made_to_fit
from placers.learned.whole_plans.placer import promising
from placers.learned.whole_plans.policy import Taken, WholePlansPolicy
from training.divergence import descend, stops_where_it_diverges
from training.trainer import below, between, share_done
from training.whole_plans.labels import LABELLED, Label, labelled_chain
from training.whole_plans.random_chains import KINDS, random_chain
from training.whole_plans.settings import WholePlans

IMITATED, DRAWN = 1 << 34, 1 << 35  # tell random numbers apart, next to a seed
FRESH = 1 << 20  # the number of the first problem without a label
NOT_FITTING = 3.0  # times its step is what a pipeline counts that does not fit
MOST = 2.0  # standard deviations of an advantage
COUNTERS = ("imitated", "updates", "simulations")


@dataclass(frozen=True)
class WholePlansMetrics:
    """One update in numbers; a line of `metrics.jsonl`."""

    update: int
    simulations: int  # so far, those of labels too
    step_over_alone: float  # geometric mean of step seconds over those on the fastest device
    fitting: float  # share of the samples
    entropy: float  # nats per decision
    label_log_probability: float  # per decision


@dataclass(frozen=True)
class Validated:
    """What some weights make of the validation problems, without a simulation."""

    update: int
    step_over_best: float  # geometric mean of step seconds over those of the best that a search knows
    fitting: float
    kept: bool  # whether they were the best until then


class WholePlansTrainer:
    """A policy, and all that is learned from."""

    def __init__(self, policy: WholePlansPolicy, settings: WholePlans, seed: int) -> None:
        self.policy, self.settings, self.seed = policy, settings, seed
        self.optimizer = torch.optim.AdamW(
            policy.parameters(), settings.learning_rate, weight_decay=settings.weight_decay
        )
        self.labels = self.references = list[Label]()  # to learn from, and to validate on
        self.imitated = self.updates = self.simulations = 0
        self.validated: list[Validated] = []
        self._kept: dict[str, Tensor] = {}
        self._decisions: dict[int, list[Taken]] = {}  # of labels, made again when they are needed
        self._seen: dict[int, Seeing] = {}

    # ---- problems ----------------------------------------------------------------------------------------------------

    def kind(self, number: int) -> str:
        """Of a random problem by its number."""
        return str(self._generator(number).choice(self._kinds(number)))

    def seeing(self, number: int) -> Seeing:
        """A random problem by its number: those with labels are the same for all seeds."""
        if number not in self._seen:
            if number >= FRESH:
                rng = self._generator(number)
                return self.policy.see(random_chain(rng, str(rng.choice(self._kinds(number)))))
            self._seen[number] = self.policy.see(labelled_chain(number))
        return self._seen[number]

    def learn_from(self, labels: Iterable[Label]) -> None:
        """Take labels: those of kinds held out are validated on, the others learned from."""
        found = [label for label in sorted(labels, key=lambda each: each.number) if label.seconds]
        held_out = [self.kind(label.number) in self.settings.held_out for label in found]
        self.labels = [label for label, is_held_out in zip(found, held_out, strict=True) if not is_held_out]
        self.references = [label for label, is_held_out in zip(found, held_out, strict=True) if is_held_out]
        if not (self.labels and self.references):
            raise InputError("there are too few labels to learn from and to validate on; raise `problems`")

    def decisions(self, label: Label) -> list[Taken]:
        """Those of a label."""
        if label.number not in self._decisions:
            seeing = self.seeing(label.number)
            construction = seeing.view.construction()
            for action in label.actions:
                construction.take(action)
            self._decisions[label.number] = self.policy.follow(seeing, construction.pipeline)
        return self._decisions[label.number]

    def _generator(self, number: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, FRESH, number) if number >= FRESH else (LABELLED, number))

    def _kinds(self, number: int) -> list[str]:
        return [kind for kind in KINDS if number < FRESH or kind not in self.settings.held_out]

    # ---- learning ----------------------------------------------------------------------------------------------------

    def imitate(self) -> float:
        """An update by labels alone; returns the mean log-probability of a decision. InputError if it diverges."""
        settings = self.settings
        with stops_where_it_diverges(self.imitated + 1, self.optimizer, of="imitation"):
            share = share_done(self.imitated, settings.imitation)
            self._take_rate(between(settings.learning_rate, settings.final_learning_rate, share))
            rng = np.random.default_rng((self.seed, IMITATED, self.imitated))
            found = self.policy.score(self._drawn_decisions(rng))[0].mean()
            self.optimizer.zero_grad()
            (-found).backward()  # type: ignore[no-untyped-call]
            descend(self.optimizer, settings.gradient_norm)
        self.imitated += 1
        return float(found.detach())

    def update(self) -> WholePlansMetrics:
        """Draw pipelines, simulate them, improve the policy. Raises InputError if it diverges."""
        settings = self.settings
        self._take_rate(settings.reinforce_rate)
        rng = np.random.default_rng((self.seed, DRAWN, self.updates))
        half = settings.drawn // 2
        labels = rng.choice(len(self.labels), min(half, len(self.labels)), replace=False)
        numbers = [self.labels[int(each)].number for each in labels]
        fresh = range(settings.drawn - len(numbers))
        numbers += [FRESH + self.updates * settings.drawn + each for each in fresh]
        episodes, advantages, steps, fitting = list[list[Taken]](), list[Floats](), list[float](), list[bool]()
        for number in numbers:
            seeing = self.seeing(number)
            drawn = [self.policy.draw(seeing, rng) for _ in range(settings.samples)]
            ratios, fits = _judged(seeing, [pipeline for pipeline, _ in drawn])
            costs = np.log(ratios) + np.where(fits, 0.0, np.log(NOT_FITTING))
            episodes += [taken for _, taken in drawn]
            advantages.append(costs.mean() - costs)
            steps += ratios.tolist()
            fitting += fits.tolist()
        self.simulations += len(steps)
        entropy, likely = self._learn(rng, episodes, np.concatenate(advantages))
        self.updates += 1
        return WholePlansMetrics(
            self.updates, self.simulations, float(np.exp(np.mean(np.log(steps)))), float(np.mean(fitting)), entropy,
            likely,
        )  # fmt: skip

    def _learn(
        self, rng: np.random.Generator, episodes: Sequence[list[Taken]], advantage: Floats
    ) -> tuple[float, float]:
        settings = self.settings
        advantage = np.clip(advantage / max(float(advantage.std()), 1e-3), -MOST, MOST)
        decisions = [each for taken in episodes for each in taken]
        weights = np.repeat(advantage, [len(taken) for taken in episodes])
        with stops_where_it_diverges(self.updates + 1, self.optimizer):
            found, entropy = self.policy.score(decisions)
            likely = self.policy.score(self._drawn_decisions(rng))[0].mean()
            gain = (found * torch.from_numpy(weights).float()).sum() / len(decisions)
            loss = -gain - settings.entropy * entropy.mean() - settings.label_weight * likely
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            descend(self.optimizer, settings.gradient_norm)
        return float(entropy.mean().detach()), float(likely.detach())

    def _drawn_decisions(self, rng: np.random.Generator) -> list[Taken]:
        """Some decisions of labels; each label's count as much as those of another one."""
        found = list[Taken]()
        for each in rng.permutation(len(self.labels)).tolist():
            if len(found) >= self.settings.batch:
                break
            found += self.decisions(self.labels[each])
        return found

    def _take_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    # ---- which weights are kept --------------------------------------------------------------------------------------

    def validate(self) -> Validated:
        """Judge the weights by their unsimulated plans of validation problems, and keep them if they are the best."""
        ratios, fitting = list[float](), list[bool]()
        for label in self.references:
            assert label.seconds
            seeing = self.seeing(label.number)
            (ratio,), (fits,) = _judged(seeing, promising(self.policy, seeing, 1, seed=0))
            ratios.append(ratio * seeing.view.step / label.seconds * (1.0 if fits else NOT_FITTING))
            fitting.append(bool(fits))
        mean = float(np.exp(np.mean(np.log(ratios))))
        is_best = not self._kept or mean < min(each.step_over_best for each in self.validated)
        if is_best:
            self._kept = {key: value.clone() for key, value in self.policy.state_dict().items()}
        self.validated.append(Validated(self.imitated + self.updates, mean, float(np.mean(fitting)), is_best))
        return self.validated[-1]

    @property
    def weights(self) -> dict[str, Tensor]:
        """The best that were validated, or those that the policy has now."""
        return self._kept or self.policy.state_dict()

    # ---- on disk -----------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Tensors and counters from which a run is resumed."""
        tensors = {f"policy.{key}": value for key, value in self.policy.state_dict().items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{index}.{key}": value for key, value in state.items()}
        tensors |= {f"kept.{key}": value for key, value in self._kept.items()}
        lines = [(each.update, each.step_over_best, each.fitting, each.kept) for each in self.validated]
        tensors["validated"] = torch.tensor(lines, dtype=torch.float64).reshape(-1, 4)
        return tensors, {name: str(getattr(self, name)) for name in (*COUNTERS, "seed")}

    def restore(self, tensors: Mapping[str, Tensor], counters: Mapping[str, str]) -> None:
        """Take a `state`. Raises InputError for that of another seed or network."""
        if counters.get("seed") != str(self.seed):
            raise InputError(f"written with seed {counters.get('seed')}, this run has seed {self.seed}")
        try:
            self.policy.load_state_dict(below("policy.", tensors))
        except RuntimeError as error:
            raise InputError("holds another network than this run's") from error
        state = self.optimizer.state_dict()
        for key, value in below("adam.", tensors).items():
            index, name = key.split(".")
            state["state"].setdefault(int(index), {})[name] = value
        self.optimizer.load_state_dict(state)
        self._kept = below("kept.", tensors)
        self.validated = [Validated(int(a), b, c, bool(d)) for a, b, c, d in tensors["validated"].tolist()]
        self.imitated, self.updates, self.simulations = (int(counters[name]) for name in COUNTERS)


def _judged(seeing: Seeing, pipelines: Sequence[LayerPipeline]) -> tuple[Floats, Bools]:
    """(pipelines,) steps over that on the fastest device, each made to fit first, and whether they do."""
    known: dict[LayerPipeline, tuple[float, bool]] = {}
    for pipeline in pipelines:
        if pipeline not in known:
            try:
                outcome = seeing.view.pipelines.outcome(made_to_fit(seeing.view, pipeline))
                known[pipeline] = outcome.step_seconds / seeing.view.step, outcome.fits
            except InputError:  # what only the plan's check finds
                known[pipeline] = NOT_FITTING, False
    found = [known[pipeline] for pipeline in pipelines]
    return np.array([ratio for ratio, _ in found]), np.array([fits for _, fits in found])
