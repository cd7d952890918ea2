"""Host: what it costs the threads that run a user's loop to issue ops to devices, which work them off on their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.quantities import Time, parse, quantity, written
from graphs.op_graph import MOST, Bools, Floats, Ints, Phase

SECONDS = "forward", "backward", "update", "collective", "placed", "deferral"  # what a host takes, by fields of `Host`


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
    waits: bool = False  # such a process waits for what it is sent, and for its device where a pass begins or ends
    fetch: float = 0.0  # to get a micro-batch, before each forward pass of a process that waits
    in_order: bool = False  # one thread for all devices issues all ops in their order, that of autograd or not
    apart: float = 0.0  # by how much two such processes come apart to a collective; so do all for each doubling
    placed: float = 0.0  # more for an op that a model calls which is run by a plan that looks at it
    deferral: float = 0.0  # and more in either pass for one whose gradient of a weight is deferred
    name: str = field(default="", compare=False, repr=False)  # its name in `HOSTS`: a cluster may have measured it

    def __post_init__(self) -> None:
        for of in (*SECONDS, "fetch", "apart"):
            seconds = getattr(self, of)
            if not 0 <= seconds <= MOST:
                what = f"a host takes {seconds} seconds to issue an op ({of})"
                raise InputError(f"{what}; expected a number from 0 to {MOST:g}")

    @classmethod
    def uniform(cls, seconds: float, *, per_device: bool = False, waits: bool = False) -> Host:
        """A host to which all cost the same, whoever calls an op."""
        return cls(seconds, seconds, seconds, seconds, per_device, waits)

    def lateness(self, members: Ints) -> Floats:
        """(collectives,) seconds that each waits for its last rank, from the (collectives,) numbers of ranks."""
        late: Floats = self.apart * np.log2(np.maximum(members, 1))
        return late

    def with_seconds(self, seconds: Mapping[str, float]) -> Host:
        """The same with other seconds, by the names of `SECONDS`."""
        return replace(self, **seconds)  # type: ignore[arg-type]  # numbers only

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


# Seconds of ops: of `eager` the medians of the small models in `evaluation/gpu_check/measured/h100.md` (PyTorch 2.11,
# Python 3.12; an op of the backward pass costs more, since autograd's nodes are one or two of them); of `megatron` read
# off half of vTrain's steps of Megatron-LM on A100 (Bang et al., MICRO 2024), in the same ratio: each layer takes 3.0
# to 3.6 ms for a micro-batch however little it computes, without computing any forward pass again. Of updates: fused
# Adam takes a processor 5.5 us for each weight. Of collectives: to enqueue one in NCCL takes PyTorch 10 to 30 us.
# `compiled` is of captured CUDA graphs, as `torch.compile(mode="reduce-overhead")` makes them: 3.4 us for a kernel of
# 2.9 us (Gray, "Getting Started with CUDA Graphs", NVIDIA 2019). `replayed` is of one thread that calls captured ops
# one by one: on a processor a small BERT takes it 9 us more than PyTorch for an op of the forward pass, and 13 of the
# backward pass, where plain ones take 18 and 11; times 2.4 that is added to `eager`, as plain ops take there. A message
# costs a copy at its two ends, a call of 24 us at least (same file) and its events. Megatron-LM waits for what it is
# sent, and for its device: `torch.cuda.synchronize` in its `p2p_communication.py` and, where a pass begins and ends, in
# its timers; and `broadcast_data` copies the sizes of a micro-batch from the device. Before a forward pass `get_batch`
# broadcasts twice and makes masks and positions, some 15 ops: in the same half, of each micro-batch 2.5 ms grow neither
# with layers nor with sequences, and the ops of embedding, head and loss cost 1.4 of these. Its ranks come apart to
# collectives by 0.1 ms for each doubling: in the same half layers of 2048 (1024) at 4 and 8 sequences take 0.2, 1.0 and
# 1.7 ms (0.0, 0.8 and 1.3) more with 2, 4 and 8 ranks than what grows with the sequences and than one device has, for
# four sums. Of models that are run by a plan: on a processor where an op of calibration's small models takes 7 us, one
# that is placed takes 5.8 more, and a deferred gradient, two nodes of Python's in place of one of PyTorch's, 19 in
# either pass; these times 2.4, too: on the machine of `eager` (same file) calls of an earlier version, Python alone,
# took 2.1 to 3.7 times as long as on that processor. To enter a module that runs whole takes as long there as three or
# four of its calls would take, if they were seen (`graphs.transforms.module_calls.ENTERING`). `graphs` is of one thread
# that launches CUDA graphs of captured ops (`envs.replay`), whose kernels cost what those of `compiled` do: each end of
# a message ends or begins a graph, so that it costs a launch more, of 10 us; and a weight's gradient is copied out of
# the memory of graphs, for 5 us.
HOSTS = {
    host.name: host
    for host in (
        Host(44e-6, 54e-6, 5e-6, 30e-6, placed=14e-6, deferral=46e-6, name="eager"),
        Host(68e-6, 81e-6, 5e-6, 30e-6, waits=True, fetch=1.1e-3, apart=100e-6, name="megatron"),
        Host(0.5e-6, 0.5e-6, 0.5e-6, 0.5e-6, name="compiled"),
        Host(66e-6, 85e-6, 5e-6, 15e-6, in_order=True, name="replayed"),
        Host(0.5e-6, 0.5e-6, 10e-6, 25e-6, in_order=True, name="graphs"),
    )
}


class HostEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """What was measured of one of `HOSTS` on a machine, in a file: seconds as in `Host`, but what was not measured."""

    forward: Time | None = None
    backward: Time | None = None
    update: Time | None = None
    collective: Time | None = None
    placed: Time | None = None
    deferral: Time | None = None

    @classmethod
    def of(cls, host: Host) -> HostEntry:
        """The entry of a host."""
        return cls(**{of: written(getattr(host, of), "seconds") for of in SECONDS})

    def host(self, name: str) -> Host:
        """The host of a name. Raises InputError for an unknown one, and what is no time."""
        if name not in HOSTS:
            raise InputError(f"hosts: {by_name.unknown('host', name, HOSTS)}")
        given = {of: getattr(self, of) for of in SECONDS if getattr(self, of) is not None}
        seconds = {of: quantity(time, "seconds", f"hosts.{name}.{of}") for of, time in given.items()}
        return HOSTS[name].with_seconds(seconds)


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
