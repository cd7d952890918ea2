"""Weights & Biases. Who logs in, and where to, `wandb login` and WANDB_MODE, WANDB_PROJECT and others say."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from graphs.foundation.errors import InputError
from graphs.foundation.files import write_whole
from training.loggers import Scalars, Settings, earlier_run

PACKAGE = "wandb"
PROJECT = "placelab"  # unless WANDB_PROJECT names another
KEPT = "wandb.txt"  # which run to go on with
UNSENT = ("offline", "disabled", "dryrun")  # values of WANDB_MODE that need no user


def check_access() -> None:
    """Log in, which asks for a key where someone can type one. Raises InputError if nobody is logged in."""
    import wandb  # not installed with placelab, and slow to import

    if os.environ.get("WANDB_MODE", "online") not in UNSENT and not wandb.login():
        raise InputError("logger wandb: nobody is logged in; `wandb login`, or set WANDB_MODE=offline")


def build(folder: Path, settings: Settings) -> WeightsAndBiases:
    """A run there named as the folder, or the one that the folder's run was logged as before."""
    import wandb  # as above

    earlier = earlier_run(folder / KEPT)
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        name=folder.name,
        dir=str(folder),
        config=dict(settings),
        id=earlier,
        resume="allow",
    )
    write_whole(folder / KEPT, f"{run.id}\n")
    return WeightsAndBiases(run)


class WeightsAndBiases:
    """Scalars of a run of Weights & Biases."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def write(self, step: int, record: Scalars) -> None:
        """What is a number."""
        self._run.log({key: value for key, value in record.items() if math.isfinite(value)}, step=step)

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()
