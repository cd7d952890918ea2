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


StepErrors = dict[str, dict[str, StepError]]  # by cost model, then by GPU of the catalogue


@cache
def step_errors() -> StepErrors:
    """Those that come with placelab."""
    return msgspec.toml.decode(FILE.read_bytes(), type=StepErrors)


def written(errors: StepErrors) -> str:
    """The text of such a file."""
    return tomli_w.dumps(msgspec.to_builtins(errors))


def timing_remarks(problem: Problem) -> list[str]:
    """Sentences: the host, which GPUs stand for devices that were not measured, how far off steps were on others."""
    known = {gpu: each for gpu, each in step_errors().get(timing(problem), {}).items() if each.steps >= FEWEST}
    found = dict[str, StepError]()
    for device in problem.cluster.devices:
        gpu = nearest_gpu(device, {name: name for name in known})
        if gpu and is_measured(device, gpu):
            found[gpu] = known[gpu]
    stands = stand_in_remark(problem)
    said = [issuing(problem), f"GPUs: {stands}." if stands else "", *map(_sentence, found, found.values())]
    return list(filter(None, said))


def _sentence(gpu: str, error: StepError) -> str:
    off = f"\u00b1{100 * error.median:.0f}% in the median, {100 * error.largest:.0f}% at most"
    return f"Error to expect of steps on one {gpu}: {off}, by {error.steps} that were measured."
