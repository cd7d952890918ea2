"""A training run on disk, from which it is resumed as if it had never stopped.

`trainer.safetensors` holds policy, Adam's moments, baselines, the best placements, counters and, where weights are
chosen by validation, their mean and the best, in one file that is
replaced in one step, so that a kill at any moment leaves a state that fits together. The random numbers of an update
follow from (seed, update) and need no storage.
"""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save

from graphs.foundation.documents import read_file
from graphs.foundation.errors import InputError, located
from graphs.foundation.files import write_whole
from placers.learned.policy_file import check_weights
from training.learning.trainer import Trainer, below
from training.runs.selection import Selection

TRAINER = "trainer.safetensors"


def save_trainer(folder: Path, trainer: Trainer, selection: Selection | None = None) -> None:
    """Write everything that a trainer, and a selection among its weights, need to be resumed into the folder.

    Of several ranks every one has to call it, and the first writes.
    """
    tensors = {f"policy.{key}": value for key, value in trainer.policy.state_dict().items()}
    for index, state in trainer.optimizer.state_dict()["state"].items():
        tensors |= {f"adam.{index}.{key}": value for key, value in state.items()}
    own, counters = trainer.state()
    selected = selection.state() if selection else {}
    if trainer.ranks.is_first:
        write_state(folder, tensors | own | selected, counters)


def restore_trainer(folder: Path, trainer: Trainer, selection: Selection | None = None) -> None:
    """Put the trainer, and a selection among its weights, where the saved ones stopped.

    Raises InputError if the file is missing or damaged, or of another run or network.
    """
    path = folder / TRAINER
    tensors, counters = read_state(folder)
    with located(path):
        trainer.restore(tensors, counters)
    if selection:
        selection.restore(tensors)
    try:
        trainer.policy.load_state_dict(below("policy.", tensors))
    except RuntimeError as error:
        raise InputError(f"{path}: holds another network than the recipe's") from error
    check_weights(path, trainer.policy.state_dict())
    state = trainer.optimizer.state_dict()
    for key, value in below("adam.", tensors).items():
        index, name = key.split(".")
        state["state"].setdefault(int(index), {})[name] = value
    trainer.optimizer.load_state_dict(state)


def write_state(folder: Path, tensors: dict[str, torch.Tensor], counters: dict[str, str]) -> None:
    """Replace the state of a run in one step; equal states are equal bytes."""
    write_whole(folder / TRAINER, _with_sorted_metadata(save(tensors, counters)))


def read_state(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """What `write_state` wrote. Raises InputError if the file is missing or damaged."""
    path = folder / TRAINER
    raw = read_file(path, "start the run again in another folder")
    try:
        with safe_open(path, "pt") as file:
            counters = file.metadata() or {}
        return load(raw), counters
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: damaged ({error}); start the run again in another folder") from error


def updates_in(folder: Path) -> int:
    """How many updates, of imitation or of the trainer, a folder's state holds; 0 without one, 1 if it is damaged."""
    if not (folder / TRAINER).is_file():
        return 0
    try:
        _, counters = read_state(folder)
        return sum(int(counters.get(name, 0)) for name in ("updates", "imitated"))
    except (InputError, ValueError):
        return 1


def _with_sorted_metadata(content: bytes) -> bytes:
    """A safetensors file with its metadata in order; the library writes them in that of a hash table, by chance."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at multiples of 8 bytes
    return len(text).to_bytes(8, "little") + text + content[8 + length :]
