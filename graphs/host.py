"""Host: what it costs the threads that run a user's loop to issue ops to devices, which work them off on their own."""

from __future__ import annotations

from dataclasses import dataclass

from graphs.foundation.errors import InputError
from graphs.foundation.quantities import parse
from graphs.op_graph import MOST

# Seconds of an op in PyTorch without compilation: of Megatron-LM on A100, whose layers take 3.0 to 3.5 ms for each
# micro-batch however little they compute (read off the measured steps of vTrain; Bang et al., MICRO 2024).
EAGER = 35e-6


@dataclass(frozen=True)
class Host:
    """Seconds of a thread for each op that takes time, and for each copy: `envs.simulation.issuing`.

    Raises InputError for seconds that are negative or not finite.
    """

    seconds: float
    per_device: bool = False  # a process for each device, not one for all of them

    def __post_init__(self) -> None:
        if not 0 <= self.seconds <= MOST:
            raise InputError(
                f"a host takes {self.seconds} seconds to issue an op; expected a number from 0 to {MOST:g}"
            )


def host_of(text: str) -> Host | None:
    """What "eager" or a time such as "30us" names; None for "none". Raises InputError for anything else."""
    if text == "none":
        return None
    if text == "eager":
        return Host(EAGER)
    try:
        return Host(parse(text, "seconds"))
    except InputError as error:
        raise InputError(
            f"host {text!r}: expected eager, none, or the time that an op costs it, such as 30us"
        ) from error
