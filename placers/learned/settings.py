"""Settings of the trainers: PPO with imitation, REINFORCE with the rules of its episodes, and that of whole plans.

A recipe gives them for a run, a policy for its fine-tuning.
"""

from typing import Annotated, Any, Literal

import msgspec

from graphs.foundation import by_name
from graphs.foundation.errors import InputError

Positive = Annotated[int, msgspec.Meta(ge=1)]
LearningRate = Annotated[float, msgspec.Meta(gt=0, le=1)]  # of Adam, which moves every weight by about that much
Limit = Annotated[float, msgspec.Meta(gt=0)]  # inf: none
Weight = Annotated[float, msgspec.Meta(ge=0, le=1e9)]  # finite, that is
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]

FEW_SAMPLES = 16  # placements per update of fine-tuning: few, so that a small budget makes many improvements (ours)
SELF_IMITATION = 1.0  # weight of the likelihood of the best placement so far (Oh et al. 2018), falling to 0; ours


class Ppo(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """PPO's settings; GDP's paper gives none, these are ours."""

    updates: Positive = 1500  # policy improvements in the whole run
    problems_per_update: Positive = 8  # problems drawn for each
    curriculum: Share = 0.0  # of the updates, during which larger graphs join, from a fifth of all problems on
    samples: Positive = 32  # placements simulated per problem and update
    epochs: Positive = 3  # passes over those samples
    reward: str = "sqrt"  # a file in training/ppo_rewards, or "my.py:build"; this one is GDP's
    baseline: Literal["samples", "moving_average"] = "samples"  # of a problem: the same update's, or earlier ones
    only_fitting_after: Annotated[int, msgspec.Meta(ge=0)] = 0  # updates, of a moving average; 0: all always count
    clip: Share = 0.2  # of the probability ratio of each unit's device
    learning_rate: LearningRate = 1e-3  # of AdamW, at the start
    final_learning_rate: LearningRate = 1e-4  # at the end, linearly
    entropy: Weight = 0.01  # bonus per nat, at the start; falls linearly to final
    final_entropy: Weight = 0.0005
    weight_decay: Weight = 0.01  # of AdamW
    gradient_norm: Limit = 1.0  # larger gradients are scaled down to this
    shards: Positive = 1  # parts of the problems, each with random numbers of its own; torchrun's processes share them
    pairs: Annotated[int, msgspec.Meta(ge=0)] = 0  # units times devices of problems that are met in one batch, with
    # all padding; an update then has several; 0: one
    first_fit: Annotated[int, msgspec.Meta(ge=0)] = 0  # simulations at most that change a sample which does not fit
    # until it does, and it is paid for what it then takes; 0: it is paid for not fitting
    repairs: Share = 0.0  # of the problems drawn, met with a plan of which some units are placed again

    def __post_init__(self) -> None:
        _check_name("training.ppo_rewards", self.reward)


class Imitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How much of what search finds is imitated before and during PPO (`training.learning.labels`). This is ours.

    Raises InputError for labels that are to be searched again, but never searched.
    """

    simulations: Annotated[int, msgspec.Meta(ge=0)] = 0  # of each search for a problem's label; 0: no imitation
    updates: Annotated[int, msgspec.Meta(ge=0)] = 0  # of imitation alone, before PPO
    weight: Weight = 0.0  # of the imitated log-probability in PPO; falls linearly to 0
    again: Annotated[int, msgspec.Meta(ge=0)] = 0  # updates that meet a problem until its label is searched again,
    # from the policy's samples on; twice as many after each search in vain; 0: it is searched once, without the policy
    preference: Weight = 0.0  # in PPO, of preferring the best sample of a problem to each of its others

    def __post_init__(self) -> None:
        if self.again and not self.simulations:
            raise InputError(
                f"labels are to be searched again after {self.again} updates, and a search has no simulations; "
                "give it some, or leave `again` out"
            )


class Reinforce(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of Placeto's REINFORCE; defaults are those of its code where its sample settings give one."""

    updates: Positive = 1000  # in the whole run
    problems_per_update: Positive = 4  # drawn for each; the authors run 4 to 8 workers
    episodes: Positive = 1  # per problem and update
    baseline_updates: Positive = 10  # over which a problem's returns are averaged
    discount: Share = 1.0
    learning_rate: LearningRate = 1e-3  # of Adam, at the start
    final_learning_rate: LearningRate = 1e-4  # at the end, linearly
    entropy: Weight = 0.1  # bonus per nat and step, at the start (ours)
    final_entropy: Weight = 0.0  # at the end, linearly
    gradient_norm: Limit = 1.25  # larger gradients are scaled down to this
    steps: Annotated[int, msgspec.Meta(ge=0)] = 0  # of the episodes, after each of which it learns; 0: whole episodes
    epochs: Positive = 1  # passes over these steps; after the first the ratio of probabilities is clipped, as in PPO
    clip: Share = 0.2  # of that ratio
    normalised: bool = False  # advantages by their standard deviation, so that the entropy bonus means the same (ours)
    imitation: Weight = 0.0  # weight of the best known device; falls linearly to 0 (ours)
    relative: bool = False  # returns in units of the problem's lower bound, so that 20 ms and 2 s count alike (ours)


class EpisodeRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How Placeto's episodes start and what they pay: `envs.gym.iterative.EpisodeStart`, but for the order of visits.

    That order is part of the network's spec, "placeto:order=random": the policy needs it also when it places.
    """

    reward: str = "improvement"  # a file in envs/rewards, or "my.py:build"
    start: Literal["random", "single", "zero", "best"] = "random"
    memory_gib: Annotated[float, msgspec.Meta(gt=0)] | None = None  # of a device, beyond which memory costs; its own
    penalty_per_gb: Weight = 2.0  # seconds
    longest_seconds: Limit = 10.0  # to which penalised seconds are clipped
    every: Positive = 1  # steps from one simulation to the next, if the reward pays before the end (ours)

    def __post_init__(self) -> None:
        _check_name("envs.rewards", self.reward)


class WholePlans(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a policy of whole plans learns from what all candidates of its problems take; all of it is ours."""

    updates: Positive = 600
    problems_per_update: Positive = 16  # drawn for each
    temperature: Annotated[float, msgspec.Meta(gt=0, le=10)] = 0.02  # of the softmax of logarithms of seconds that is
    # learned: twice that much slower counts as e^-2
    learning_rate: LearningRate = 2e-3  # of AdamW, at the start
    final_learning_rate: LearningRate = 1e-4  # at the end, linearly
    weight_decay: Weight = 0.01  # of AdamW
    gradient_norm: Limit = 1.0  # larger gradients are scaled down to this


def _check_name(folder: str, spec: str) -> None:
    """Raise InputError for the name of nothing; a user's own file is looked at when it is used."""
    if by_name.own(spec) is None and not by_name.exists(folder, name := spec.partition(":")[0]):
        raise InputError(f"{by_name.unknown('reward', name, by_name.names(folder))}; or name your own, FILE.py:build")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a trainer is given; sections of another trainer stay at their defaults."""

    ppo: Ppo = Ppo()
    imitation: Imitation = Imitation()
    reinforce: Reinforce = Reinforce()
    rules: EpisodeRules = EpisodeRules()
    whole_plans: WholePlans = WholePlans()
    own: Any = None  # of a user's own trainer, its `settings_type`


def brief_ppo(simulations: int, samples: int = FEW_SAMPLES) -> Ppo:
    """PPO for fine-tuning within a number of simulations; policies depart from this where something else is better."""
    return Ppo(
        updates=max(1, simulations // samples), problems_per_update=1, samples=samples, epochs=4,
        learning_rate=5e-4, final_learning_rate=1e-4, entropy=0.003, final_entropy=0.0005,
    )  # fmt: skip
