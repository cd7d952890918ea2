"""A training run on disk, such that it goes on from there as if it had never stopped.

`trainer.safetensors` holds policy, Adam's moments, baselines and counters in one file that is replaced in one step, so
that a kill at any moment leaves a state that fits together. The random numbers of an update follow from (seed, update)
and need no storage.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import nn

from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from placers.learned.policy_file import check_weights
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
    check_weights(path, policy.state_dict())
    state = optimizer.state_dict()
    for key, value in below("adam.", tensors).items():
        index, name = key.split(".")
        state["state"].setdefault(int(index), {})[name] = value
    optimizer.load_state_dict(state)


def write_state(folder: Path, tensors: dict[str, torch.Tensor], counters: dict[str, str]) -> None:
    """Replace the state of a run in one step; equal states are equal bytes."""
    write_whole(folder / TRAINER, _with_sorted_metadata(save(tensors, counters)))


def read_state(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """What `write_state` wrote. Raises InputError if the file is missing or damaged."""
    path = folder / TRAINER
    try:
        with safe_open(path, "pt") as file:
            counters = file.metadata() or {}
        return load_file(path), counters
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: damaged ({error}); start the run again in another folder") from error


def updates_in(folder: Path) -> int:
    """How many updates, of imitation or of the trainer, a folder's state holds; 0 without one, 1 if it is damaged."""
    path = folder / TRAINER
    if not path.is_file():
        return 0
    try:
        with safe_open(path, "pt") as file:
            counters = file.metadata() or {}
        return sum(int(counters.get(name, 0)) for name in ("updates", "imitated"))
    except (OSError, SafetensorError, ValueError):
        return 1


def _with_sorted_metadata(content: bytes) -> bytes:
    """A safetensors file with its metadata in order; the library writes them in that of a hash table, by chance."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at multiples of 8 bytes
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def below(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors whose names begin so, without that beginning."""
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
