"""MLflow. Where to, MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME say."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from graphs.foundation.files import write_whole
from training.loggers import Scalars, Settings, earlier_run

PACKAGE = "mlflow"
EXPERIMENT = "placelab"  # unless MLFLOW_EXPERIMENT_NAME names another
KEPT = "mlflow.txt"  # which run to go on with
LONGEST = 500  # characters of a setting's value


def check_access() -> None:
    """Ask the server for the experiment."""
    import mlflow  # not installed with placelab, and slow to import

    mlflow.set_experiment(_experiment())


def build(folder: Path, settings: Settings) -> MLflow:
    """A run there named as the folder, or the one that the folder's run was logged as before."""
    import mlflow  # as above

    mlflow.set_experiment(_experiment())
    if earlier := earlier_run(folder / KEPT):
        mlflow.start_run(run_id=earlier)
        return MLflow(mlflow)
    run = mlflow.start_run(run_name=folder.name)
    write_whole(folder / KEPT, f"{run.info.run_id}\n")
    mlflow.log_params({name: str(value)[:LONGEST] for name, value in settings.items()})
    return MLflow(mlflow)


def _experiment() -> str:
    return os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)


class MLflow:
    """Scalars of MLflow's active run."""

    def __init__(self, mlflow: Any) -> None:
        self._mlflow = mlflow

    def write(self, step: int, record: Scalars) -> None:
        """What is a number."""
        self._mlflow.log_metrics({key: value for key, value in record.items() if math.isfinite(value)}, step=step)

    def close(self) -> None:
        """The run has ended."""
        self._mlflow.end_run()
