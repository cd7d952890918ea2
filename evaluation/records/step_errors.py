"""Errors to expect of step times, in `step_errors.toml`: what the study of measured steps found, by cost model and GPU.

`make measured` writes the file. It counts steps of one GPU, whose times depend least on how a plan is run.
"""

from functools import cache
from pathlib import Path

import msgspec
import tomli_w

from envs.costs.cost_models.roofline import stand_in_remark
from envs.costs.costs import issuing, timing
from envs.costs.nearest_gpu import is_measured, nearest_gpu
from graphs.problem import Problem

FILE = Path(__file__).with_suffix(".toml")
FEWEST = 5  # steps from which an error is said


class StepError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the steps of one GPU."""

    steps: int
    median: float  # of predicted over measured seconds, less one, without sign
    largest: float


class StepErrors(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the file holds, by cost model."""

    measured: dict[str, dict[str, StepError]] = {}  # by GPU of the catalogue
    by_another: dict[str, StepError] = {}  # of GPUs as if they were not measured, and others stood for them


@cache
def step_errors() -> StepErrors:
    """Those that come with placelab."""
    return msgspec.toml.decode(FILE.read_bytes(), type=StepErrors)


def written(errors: StepErrors) -> str:
    """The text of such a file."""
    return tomli_w.dumps(msgspec.to_builtins(errors))


def timing_remarks(problem: Problem) -> list[str]:
    """Sentences: the host, which GPUs stand for devices that were not measured, how far off steps were on others."""
    errors, model = step_errors(), timing(problem)
    known = {gpu: each for gpu, each in errors.measured.get(model, {}).items() if each.steps >= FEWEST}
    found = dict[str, StepError]()
    for device in problem.cluster.devices:
        gpu = nearest_gpu(device, {name: name for name in known})
        if gpu and is_measured(device, gpu):
            found[gpu] = known[gpu]
    stands = stand_in_remark(problem)
    return list(filter(None, [
        issuing(problem), *map(_sentence, found, found.values()),
        f"GPUs: {stands}. {_of_stand_ins(errors.by_another.get(model))}" if stands else "",
    ]))  # fmt: skip


def _sentence(gpu: str, error: StepError) -> str:
    return f"Error to expect of steps on one {gpu}: {_off(error)}, by {error.steps} that were measured."


def _of_stand_ins(error: StepError | None) -> str:
    if error is None or error.steps < FEWEST:
        return "The error to expect of their steps is not known."
    return (
        f"Their steps may be off by {_off(error)}: so were {error.steps} steps of other GPUs, estimated in this way. "
        "For architectures that are further away the error is not known."
    )


def _off(error: StepError) -> str:
    return f"\u00b1{100 * error.median:.0f}% in the median, {100 * error.largest:.0f}% at most"
