"""Settings of random problems: how many there are, of which kinds, and between which bounds they are drawn."""

from collections.abc import Sequence
from typing import Annotated

import msgspec

from graphs.foundation.errors import InputError
from placers.learned.settings import Positive, Share
from training.problems.random.kinds import FEWEST_NODES, KINDS, check_kinds
from training.problems.random.random_chains import CHAINS, check_chains

Count = Annotated[int, msgspec.Meta(ge=0)]
Ratio = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
ANY_SIZE = 1 << 20  # units times devices: more than any bounds of units and devices come to


class World(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Random problems to train on, some at a time; all of this is ours.

    Pairs are bounds between which the logarithm is drawn uniformly. Raises InputError for kinds that there are not,
    kinds both trained on and held out, and bounds that are no bounds.
    """

    problems: Count = 0  # random problems at a time; 0: none
    renewed: Annotated[float, msgspec.Meta(ge=0, le=1e3)] = 0.25  # of them, per update: the oldest give way to new ones
    share: Share = 0.5  # of the problems of an update, where there are others, such as those of families
    kinds: tuple[str, ...] = ()  # of the graphs trained on, each as often; all that are not held out, if none is named
    held_out: tuple[str, ...] = ()  # kinds that are not trained on, but evaluated on
    units: tuple[Positive, Positive] = (8, 512)
    devices: tuple[Positive, Positive] = (2, 16)
    pairs: tuple[Positive, Positive] = (ANY_SIZE, ANY_SIZE)  # units times devices that a problem has at most
    transfers: tuple[Ratio, Ratio] = (0.02, 10.0)  # mean seconds to send an output over mean seconds of an op
    host: tuple[Ratio, Ratio] = (0.003, 2.0)  # seconds to issue a forward op over mean seconds of an op, with a host
    nothing_sent: Share = 0.05  # of the problems, whose outputs have no bytes
    training: Share = 0.5  # of the problems, whole training steps; the others are forward passes
    grouped: Share = 0.4  # of the problems, with several ops tied into each unit
    equal_times: Share = 0.3  # of the problems, whose forward ops all take the same time
    measured: Share = 0.25  # of the problems, with times that do not follow from what ops compute
    unequal: Share = 0.4  # of the problems, with devices of unlike speed
    tight: Share = 0.3  # of the problems, with less memory than twice what a plan that saves memory needs
    scarce: Share = 0.0  # of the problems, with little more memory than any plan needs (`training.problems.scarce`)

    def __post_init__(self) -> None:
        check_kinds(self.kinds)
        check_kinds(self.held_out)
        if both := sorted({*self.kinds} & {*self.held_out}):
            raise InputError(f"kind of graph {both[0]!r} is both to be trained on and held out; choose one")
        if not self.trained_on:
            raise InputError("all kinds of random graphs are held out; leave some to train on")
        for name in ("units", "devices", "pairs", "transfers", "host"):
            low, high = getattr(self, name)
            if low > high:
                raise InputError(f"{name} are to be from {low} to {high}; give the smaller number first")
        if self.pairs[0] < self.units[0] * self.devices[0]:
            raise InputError(
                f"the smallest problem has {self.units[0]} units on {self.devices[0]} devices, and pairs begins at "
                f"{self.pairs[0]}; begin with {self.units[0] * self.devices[0]} at least"
            )
        if self.units[0] < FEWEST_NODES:
            raise InputError(f"random graphs have at least {FEWEST_NODES} units, and units begins at {self.units[0]}")

    @property
    def trained_on(self) -> Sequence[str]:
        """The kinds of the graphs that are trained on."""
        return self.kinds or [kind for kind in KINDS if kind not in self.held_out]


class Chains(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Random chains of layers to train a policy of whole plans on (`training.problems.random.random_chains`).

    Raises InputError for kinds that there are not, and if all are held out.
    """

    problems: Count = 0  # random chains with labels, the same for every seed of training; 0: none
    held_out: tuple[str, ...] = ()  # kinds that are not trained on, but validated on

    def __post_init__(self) -> None:
        check_chains(self.held_out)
        if not self.trained_on:
            raise InputError("all kinds of chains are held out; leave some to train on")

    @property
    def trained_on(self) -> Sequence[str]:
        """The kinds of the chains that are trained on."""
        return [kind for kind in CHAINS if kind not in self.held_out]
