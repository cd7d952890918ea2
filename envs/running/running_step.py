"""What every way of running a plan offers: a step that processes run together, and a record of when each did what."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from torch import Tensor

from envs.simulation.simulator import LaidOut


class Span(NamedTuple):
    """When an op ran, by a clock that all processes share."""

    op: int  # of the graph that is laid out
    start: float  # seconds
    finish: float  # seconds


class Message(NamedTuple):
    """When a tensor was on its way between processes."""

    output: int  # whose it is, of the graph that is laid out
    source: int  # device
    destination: int  # device
    size: int  # bytes
    start: float  # seconds; when it was handed over to be sent
    finish: float  # seconds; when its reader had it


@dataclass
class StepRecord:
    """What one process did in a step."""

    spans: list[Span] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    """Those that it received, and those that it sent, if it knows only one end of each: the other one's time is NaN."""


class RunningStep(Protocol):
    """The part of a training step that one process runs; all processes call `run` equally often."""

    @property
    def laid(self) -> LaidOut:
        """The problem whose ops spans name, and where they are."""
        ...

    def run(self, inputs: Mapping[int, Tensor], record: StepRecord | None = None) -> float:
        """One step, updates included. `inputs` are the inputs by their leaf in the model's arguments.

        Returns the part of the loss that was computed in this process.
        """
        ...

    def weights(self) -> Mapping[str, Tensor]:
        """The weights that this process updates, by name, as they are now."""
        ...

    def gradients(self) -> Mapping[str, Tensor]:
        """The gradients of these in the latest step, by name."""
        ...

    def buffers(self) -> Mapping[str, Tensor]:
        """The buffers that this process changes, by name, as they are now."""
        ...
