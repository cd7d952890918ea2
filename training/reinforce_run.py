"""A run of Placeto's training in a folder, such that it goes on from there as if it had never stopped.

`trainer.safetensors` holds policy, Adam's moments, the baselines' returns, the best placements and the counters in one
file that is replaced in one step. The folder is a checkpoint of the placer `placeto` once the run has ended.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import torch
from tqdm import tqdm

from envs.iterative import Rules
from graphs.errors import InputError
from graphs.problem import Problem
from placers.placeto import Placeto
from placers.policies.placeto import Shape, new_placeto
from placers.policies.placeto_file import PlacetoMeta, save_placeto
from placers.searching.interrupts import Interrupts
from training.checkpoint import TRAINER, read_state, write_state
from training.reinforce import Reinforce, ReinforceTrainer

METRICS = "metrics.jsonl"
VERSION = "1"
CHECKPOINT_EVERY = 50  # updates


def train_placeto(
    problems: Sequence[Problem],
    *,
    out: Path,
    shape: Shape | None = None,
    settings: Reinforce | None = None,
    rules: Rules | None = None,
    seed: int = 0,
    resume: bool = False,
) -> Placeto:
    """Train a Placeto policy by REINFORCE and return its placer; the folder `out` then holds the run.

    With `resume` the run in `out` goes on from its last checkpoint, to the same end as if it had not stopped. Ctrl-C
    stops after the current update, saves, and raises KeyboardInterrupt. Raises InputError for a folder that holds a
    run already, or, with `resume`, none or one of other problems, settings or seed.
    """
    shape = shape or Shape()
    trainer = ReinforceTrainer(new_placeto(shape, seed), problems, settings, rules=rules, seed=seed)
    if resume:
        restore_reinforce(out, trainer)
        lines = (out / METRICS).read_text().splitlines(keepends=True)
        (out / METRICS).write_text("".join(lines[: trainer.updates]))
    elif (out / TRAINER).exists():
        raise InputError(f"{out} holds a run already; go on with resume, or choose another folder")
    out.mkdir(parents=True, exist_ok=True)
    _run(trainer, out)
    meta = PlacetoMeta(
        shape=shape, seed=seed, updates=trainer.updates, simulations=trainer.simulations, order=trainer.mdp.rules.order
    )
    save_placeto(out, trainer.policy, meta)
    if trainer.updates < trainer.settings.updates:
        raise KeyboardInterrupt(f"stopped after update {trainer.updates} of {trainer.settings.updates}; saved in {out}")
    return Placeto(trainer.policy, f"placeto:checkpoint={out}", order=meta.order)


def save_reinforce(folder: Path, trainer: ReinforceTrainer) -> None:
    """Write everything the trainer needs to go on into the folder."""
    tensors = {f"policy.{key}": value for key, value in trainer.policy.state_dict().items()}
    for index, state in trainer.optimizer.state_dict()["state"].items():
        tensors |= {f"adam.{index}.{key}": value for key, value in state.items()}
    for index, field in enumerate(trainer.fields):
        if field.returns:
            tensors[f"returns.{index}"] = torch.from_numpy(np.stack(field.returns))
        if field.scene in trainer.mdp.best:
            rho, placement = trainer.mdp.best[field.scene]
            tensors[f"best.{index}"] = torch.from_numpy(np.append(rho, placement))  # float64 holds devices exactly
    counters = {"updates": str(trainer.updates), "simulations": str(trainer.simulations)}
    write_state(folder, tensors, {"version": VERSION, "of": _fingerprint(trainer), **counters})


def restore_reinforce(folder: Path, trainer: ReinforceTrainer) -> None:
    """Put the trainer where the saved one stopped.

    Raises InputError if the file is missing, damaged, or of another version, seed, policy, problems or settings.
    """
    path = folder / TRAINER
    tensors, counters = read_state(folder, "resume")
    if counters.get("version") != VERSION or counters.get("of") != _fingerprint(trainer):
        raise InputError(f"{path}: is of another seed, policy, problems, rules or settings than this run")
    state = trainer.optimizer.state_dict()
    weights = {}
    for name, value in tensors.items():
        kind, _, rest = name.partition(".")
        if kind == "policy":
            weights[rest] = value
        elif kind == "adam":
            index, _, key = rest.partition(".")
            state["state"].setdefault(int(index), {})[key] = value
        elif kind == "returns":
            trainer.fields[int(rest)].returns.extend(value.numpy())
        else:
            best = value.numpy()
            trainer.mdp.best[trainer.fields[int(rest)].scene] = (float(best[0]), best[1:].astype(np.int64))
    trainer.policy.load_state_dict(weights)
    trainer.optimizer.load_state_dict(state)
    trainer.updates = int(counters["updates"])
    trainer.simulations = int(counters["simulations"])


def _run(trainer: ReinforceTrainer, out: Path) -> None:
    torch.set_num_threads(1)  # the matrices are a few columns wide
    updates = trainer.settings.updates
    bar = tqdm(total=updates, initial=trainer.updates, desc="training", unit="update", disable=None)
    with Interrupts() as interrupts, (out / METRICS).open("a") as lines, bar:
        while trainer.updates < updates and not interrupts.requested:
            line = trainer.update()
            print(json.dumps(line.to_record()), file=lines, flush=True)
            bar.set_postfix_str(f"step/bound {line.step_over_bound:.2f}, fitting {line.fitting:.0%}", refresh=False)
            bar.update()
            if trainer.updates % CHECKPOINT_EVERY == 0:
                save_reinforce(out, trainer)
    save_reinforce(out, trainer)


def _fingerprint(trainer: ReinforceTrainer) -> str:
    """What must not change when a run is resumed."""
    problems = [
        (field.scene.problem.graph.fingerprint, field.scene.problem.cluster.fingerprint, field.scene.problem.optimizer)
        for field in trainer.fields
    ]
    parts = (trainer.seed, trainer.policy.shape, trainer.settings, trainer.mdp.rules, problems)
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
