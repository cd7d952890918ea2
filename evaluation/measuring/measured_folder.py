"""The folder of a run in processes, with the files that folders of trainings have, and the plan and both steps."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import tomli_w

from envs.costs.costs import AUTO
from envs.files.trace import save_traces
from evaluation.measuring.measured_plan import MeasuredPlan
from graphs.foundation.errors import InputError
from graphs.foundation.files import named_if_refused, write_whole
from graphs.foundation.machine import library_versions, processor_name
from training.loggers import DEFAULT_LOGGERS
from training.runs.run_folder import CONFIG, METRICS, RunFolder

RESULT, PLAN = "measured.json", "run.plan.json"


def check_free(folder: Path) -> None:
    """Raise InputError for a folder that cannot be written, or holds a run already."""
    RunFolder(folder).check_writable()
    if any((folder / name).exists() for name in (RESULT, METRICS, CONFIG)):
        raise InputError(f"{folder} holds a run already; choose another `out`")


def save_run(found: MeasuredPlan, folder: Path, asked: Mapping[str, str]) -> None:
    """Write what was run, on what, with which seed and versions, every step, and the plan next to its measured step.

    `asked` are further flags, by name, of the command that repeats the run with the plan in the folder.
    """
    with named_if_refused(folder):
        folder.mkdir(parents=True, exist_ok=True)
    problem = found.planned.problem
    what = {"problem": problem.name, "cluster": problem.cluster.name, "devices": list(found.devices)}
    write_whole(folder / "command.txt", _command(found, folder, asked) + "\n")
    write_whole(folder / CONFIG, tomli_w.dumps(what | {"training": asdict(found.training)}))
    meta = {"seed": found.training.seed, "versions": library_versions() | {"cpu": processor_name()}}
    write_whole(folder / "meta.json", json.dumps(meta, indent=2) + "\n")
    with RunFolder(folder).metrics(DEFAULT_LOGGERS, {}) as loggers:
        for step, (seconds, loss) in enumerate(zip(found.run.seconds.tolist(), found.run.losses, strict=True)):
            for logger in loggers:
                logger.write(step, {"step": step, "step_seconds": seconds, "loss": loss})
    found.planned.save(folder / PLAN)
    save_traces({"predicted": found.run.predicted, "measured": found.run.measured}, folder / "steps.trace.json.gz")
    found.save_chart(folder / "steps.html")
    write_whole(folder / RESULT, json.dumps(found.to_json(), indent=2) + "\n")


def _command(found: MeasuredPlan, folder: Path, asked: Mapping[str, str]) -> str:
    training = found.training
    flags = {
        **{key.replace("_", "-"): value for key, value in asked.items() if value and value != AUTO},
        "devices": ",".join(found.devices), "steps": str(training.steps), "seed": str(training.seed),
        **({"batch": str(training.samples)} if training.samples else {}),
        **({"data": training.data} if training.data else {}),
    }  # fmt: skip
    words = [word for key, value in flags.items() for word in (f"--{key}", value)]
    return shlex.join(["placelab", "run", training.model, str(folder / PLAN), *words])
