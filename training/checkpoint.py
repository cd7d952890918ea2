"""A training run on disk, such that it goes on from there as if it had never stopped.

`trainer.safetensors` holds policy, Adam's moments, baselines and counters in one file that is replaced in one step, so
that a kill at any moment leaves a state that fits together. The random numbers of an update follow from (seed, update)
and need no storage.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from graphs.errors import InputError
from training.ppo import PpoTrainer
from training.rollouts import Policy

TRAINER = "trainer.safetensors"
VERSION = "2"


def save_trainer(folder: Path, trainer: PpoTrainer) -> None:
    """Write everything the trainer needs to go on into the folder."""
    tensors = learner_state(trainer.policy, trainer.optimizer)
    tensors["baselines"] = torch.tensor([arena.baseline.value for arena in trainer.arenas], dtype=torch.float64)
    for index, arena in enumerate(trainer.arenas if trainer.imitation.simulations else ()):
        if arena.best_placement is not None:  # which the policy imitates
            tensors[f"best.{index}"] = torch.from_numpy(np.append(arena.best_seconds, arena.best_placement))
    counters = {name: str(getattr(trainer, name)) for name in ("updates", "imitated", "simulations", "seed")}
    write_state(folder, tensors, {"version": VERSION, **counters})


def restore_trainer(folder: Path, trainer: PpoTrainer) -> None:
    """Put the trainer where the saved one stopped.

    Raises InputError if the file is missing or damaged, of another version, seed, or network.
    """
    path = folder / TRAINER
    tensors, counters = read_state(folder)
    for key, ours in (("version", VERSION), ("seed", str(trainer.seed))):
        if counters.get(key) != ours:
            raise InputError(f"{path}: written with {key} {counters.get(key)}, this run has {key} {ours}")
    restore_learner(path, tensors, trainer.policy, trainer.optimizer)
    for arena, value in zip(trainer.arenas, tensors.get("baselines", torch.zeros(0)).tolist(), strict=False):
        arena.baseline.value = value
    for key, value in below("best.", tensors).items():
        arena, best = trainer.arenas[int(key)], value.numpy()
        arena.best_seconds, arena.best_placement = float(best[0]), best[1:].astype(np.int64)
    trainer.updates = int(counters["updates"])
    trainer.imitated = int(counters["imitated"])
    trainer.simulations = int(counters["simulations"])


def learner_state(policy: Policy | nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """A policy and what Adam knows of it, by name."""
    tensors = {f"policy.{key}": value for key, value in policy.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"adam.{index}.{key}": value for key, value in state.items()}
    return tensors


def restore_learner(
    path: Path, tensors: dict[str, torch.Tensor], policy: Policy | nn.Module, optimizer: torch.optim.Optimizer
) -> None:
    """Put a policy and its optimizer where `learner_state` saw them. Raises InputError for those of another network."""
    try:
        policy.load_state_dict(below("policy.", tensors))
    except RuntimeError as error:
        raise InputError(f"{path}: holds another network than the recipe's") from error
    state = optimizer.state_dict()
    for key, value in below("adam.", tensors).items():
        index, name = key.split(".")
        state["state"].setdefault(int(index), {})[name] = value
    optimizer.load_state_dict(state)


def write_state(folder: Path, tensors: dict[str, torch.Tensor], counters: dict[str, str]) -> None:
    """Replace the state of a run in one step."""
    fresh = folder / f"{TRAINER}.new"
    save_file(tensors, fresh, metadata=counters)
    fresh.replace(folder / TRAINER)


def read_state(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """What `write_state` wrote. Raises InputError if the file is missing or damaged."""
    path = folder / TRAINER
    if not path.is_file():
        raise InputError(f"{folder} holds no run to resume ({TRAINER} is missing); start one without --resume")
    try:
        with safe_open(path, "pt") as file:
            counters = file.metadata()
        return load_file(path), counters
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: damaged ({error}); start the run again in another folder") from error


def below(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors whose names begin so, without that beginning."""
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
