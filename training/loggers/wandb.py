"""Weights & Biases. Who logs in, and where to, `wandb login` and WANDB_MODE, WANDB_PROJECT and others say."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from graphs.foundation.files import write_whole
from training.loggers import Scalars, Settings

PACKAGE = "wandb"
PROJECT = "placelab"  # unless WANDB_PROJECT names another
ID = "wandb.txt"  # in the run folder: which run to go on with


def build(folder: Path, settings: Settings) -> WeightsAndBiases:
    """A run there named as the folder, or the one that the folder's run was logged as before."""
    import wandb  # not installed with placelab, and slow to import

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / ID
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        name=folder.name,
        dir=str(folder),
        config=dict(settings),
        id=file.read_text().strip() if file.is_file() else None,
        resume="allow",
    )
    write_whole(file, f"{run.id}\n")
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
