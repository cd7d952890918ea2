"""A run of Placeto's REINFORCE on disk, such that it goes on from there as if it had never stopped.

`trainer.safetensors` holds policy, Adam's moments, the baselines' returns, the best placements and the counters in one
file that is replaced in one step.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import numpy as np
import torch

from envs.incumbent import Incumbent
from graphs.foundation.errors import InputError
from training.checkpoint import TRAINER, below, learner_state, read_state, restore_learner, write_state
from training.reinforce import ReinforceTrainer

VERSION = "1"


def save_reinforce(folder: Path, trainer: ReinforceTrainer) -> None:
    """Write everything the trainer needs to go on into the folder."""
    tensors = learner_state(trainer.policy, trainer.optimizer)
    for index, field in enumerate(trainer.fields):
        if field.returns:
            tensors[f"returns.{index}"] = torch.from_numpy(np.stack(field.returns))
        best = trainer.mdp.best.get(field.observed)
        if best is not None and best.placement is not None:
            tensors[f"best.{index}"] = torch.from_numpy(
                np.append(best.value, best.placement)
            )  # float64 holds devices exactly
    counters = {"updates": str(trainer.updates), "simulations": str(trainer.simulations)}
    write_state(folder, tensors, {"version": VERSION, "of": _fingerprint(trainer), **counters})


def restore_reinforce(folder: Path, trainer: ReinforceTrainer) -> None:
    """Put the trainer where the saved one stopped.

    Raises InputError if the file is missing, damaged, or of another version, seed, policy, problems or settings.
    """
    path = folder / TRAINER
    tensors, counters = read_state(folder)
    if counters.get("version") != VERSION or counters.get("of") != _fingerprint(trainer):
        raise InputError(f"{path}: is of another seed, policy, problems, rules or settings than this run")
    restore_learner(path, tensors, trainer.policy, trainer.optimizer)
    for index, value in below("returns.", tensors).items():
        trainer.fields[int(index)].returns.extend(value.numpy())
    for index, value in below("best.", tensors).items():
        best = value.numpy()
        trainer.mdp.best[trainer.fields[int(index)].observed] = Incumbent(best[1:].astype(np.int64), float(best[0]))
    trainer.updates = int(counters["updates"])
    trainer.simulations = int(counters["simulations"])


def _fingerprint(trainer: ReinforceTrainer) -> str:
    """What must not change when a run is resumed."""
    problems = [
        (
            field.observed.problem.graph.fingerprint,
            field.observed.problem.cluster.fingerprint,
            field.observed.problem.optimizer,
        )
        for field in trainer.fields
    ]
    parts = (trainer.seed, trainer.policy.shape, trainer.settings, trainer.mdp.rules, problems)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
