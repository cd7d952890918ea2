"""Host: what it costs the threads that run a user's loop to issue ops to devices, which work them off on their own."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from graphs.foundation.errors import InputError
from graphs.foundation.quantities import parse
from graphs.op_graph import MOST, Bools, Floats, Ints, Phase


@dataclass(frozen=True)
class Host:
    """Seconds of a thread for each op that takes time, by its phase, for each copy, and for each collective.

    `envs.simulation.issuing` says which thread issues what. Raises InputError for seconds that are negative or not
    finite.
    """

    forward: float
    backward: float  # also of what is computed again
    update: float  # of the update of one weight; also of what refreshes its copies
    collective: float  # on each device that takes part in one, or in a message between processes
    per_device: bool = False  # a process for each device, not one for all of them
    waits: bool = False  # such a process waits for what it is sent before it issues what reads that

    def __post_init__(self) -> None:
        for field in fields(self):
            seconds = getattr(self, field.name)
            if not 0 <= seconds <= MOST:
                what = f"a host takes {seconds} seconds to issue an op ({field.name})"
                raise InputError(f"{what}; expected a number from 0 to {MOST:g}")

    @classmethod
    def uniform(cls, seconds: float, *, per_device: bool = False, waits: bool = False) -> Host:
        """A host to which all cost the same."""
        return cls(seconds, seconds, seconds, seconds, per_device, waits)

    def seconds(self, phase: Ints) -> Floats:
        """(ops,) what an op of each phase costs, if it takes time."""
        of_phase = np.full(len(Phase), self.update)
        of_phase[Phase.FORWARD], of_phase[Phase.BACKWARD] = self.forward, self.backward
        found: Floats = of_phase[phase]
        return found


@dataclass(frozen=True, eq=False)
class Collectives:
    """Which ops of an expanded graph are steps of collectives, and where a thread launches these."""

    launches: Ints  # (ops,) how many the thread of its device launches with each op
    steps: Bools  # (ops,) what is a step of one: its messages are no launches of their own, and nothing waits for them

    def of(self, kept: Bools) -> Collectives:
        """Those of some of the ops, (ops,)."""
        return Collectives(self.launches[kept], self.steps[kept])


# In PyTorch without compilation an op costs 35 us: of Megatron-LM on A100, whose layers take 3.0 to 3.5 ms for each
# micro-batch however little they compute (read off the measured steps of vTrain; Bang et al., MICRO 2024).
# Megatron-LM's processes wait for what they are sent (`torch.cuda.synchronize` in its `p2p_communication.py`).
HOSTS = {"eager": Host.uniform(35e-6), "megatron": Host.uniform(45e-6, waits=True)}


def host_of(text: str) -> Host | None:
    """What a name in `HOSTS` or a time such as "30us" stands for; None for "none". Raises InputError for others."""
    if text == "none":
        return None
    if text in HOSTS:
        return HOSTS[text]
    try:
        return Host.uniform(parse(text, "seconds"))
    except InputError as error:
        raise InputError(
            f"host {text!r}: expected {', '.join(HOSTS)}, none, or the time that an op costs it, such as 30us"
        ) from error
