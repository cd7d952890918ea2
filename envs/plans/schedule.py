"""Schedule: in how many micro-batches a step is run, through which stages, and in which order.

A step of 4 micro-batches through 2 stages, one on each device, in DAPPLE's order (1F1B): F is the forward pass of a
stage for a micro-batch, B the backward pass.

    gpu:0   F0 F1 B0 F2 B1 F3 B2    B3
    gpu:1      F0 B0 F1 B1 F2 B2 F3 B3

What a schedule means for each op is written by `envs.expansion`; the orders of passes are in `envs.pass_orders`.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from envs.pass_orders import PassOrder
from graphs.foundation.by_name import Extension
from graphs.foundation.errors import InputError

_PASS_ORDERS = "envs.pass_orders"
_NAMES_IN_PYTORCH = {"1f1b": "early_backward_a", "interleaved1f1b": "interleaved"}  # in small letters
AS_READY: Extension[PassOrder] = Extension(_PASS_ORDERS, "as_ready")
"""No order of passes: of what is ready, devices run earlier micro-batches first, and those by the plan's order of ops.

It orders no passes, and cannot be built."""
BUCKET_BYTES = float(25 * 2**20)  # of gradients that are summed up together, as in PyTorch's DistributedDataParallel

Sharing = Literal["split", "turns"]
Update = Literal["step", "micro_batch"]
Recomputing = Literal["late", "early", "block"]
AllReduce = Literal["ring", "hierarchical", "direct", "nccl"]
AllReduceOrDefault = Literal["", AllReduce]
Zero = Literal[0, 1, 2, 3]
Shares = tuple[int, ...]  # of each replica of a stage; () if they are equal


def pass_order_of(what: Extension[PassOrder] | str) -> Extension[PassOrder]:
    """The order of passes that a spec names, such as "gpipe", "early_backward_a:in_flight=4" or "my.py:build".

    Orders that PyTorch calls otherwise may be given by its names, too. Raises InputError as `Extension.of`.
    """
    if isinstance(what, str):
        name, colon, knobs = what.partition(":")
        what = f"{_NAMES_IN_PYTORCH.get(name.lower(), name)}{colon}{knobs}"
    return AS_READY if what == AS_READY.name else Extension.of(_PASS_ORDERS, what)


class PassOrderDescriptor:
    """The field `order` of a dataclass: an order of passes, which may be given by its spec."""

    def __init__(self, default: Extension[PassOrder]) -> None:
        self._default = default

    def __get__(self, holder: object | None, _: type | None = None) -> Extension[PassOrder]:
        return self._default if holder is None else holder.__dict__["order"]

    def __set__(self, holder: object, value: Extension[PassOrder] | str) -> None:
        holder.__dict__["order"] = pass_order_of(value)


@dataclass(frozen=True)
class Schedule:
    """How a step is run. The default runs the whole batch at once, as an op placement does.

    Raises InputError for what no graph can have: fewer than one micro-batch, an empty bucket, or an unknown value.
    """

    micro_batches: int = 1
    """Equal parts of the batch that follow one another; gradients are summed up over them."""
    stages: tuple[int, ...] = ()
    """(ops,) the stage of each op, from 0; empty: ops on the same devices are a stage (`envs.plans.stages`)."""
    order: PassOrderDescriptor = PassOrderDescriptor(AS_READY)
    """The order of passes (`envs.pass_orders`), or `AS_READY`."""
    recompute: tuple[int, ...] = ()
    """Stages that keep only what enters them, or their blocks, and run forward ops again for the backward pass."""
    recompute_at: Recomputing = "late"
    """Once the gradient has arrived (DAPPLE), or as soon as the device is free (torchgpipe), the whole stage; or block
    by block, each once the gradient has arrived at it (`torch.utils.checkpoint` around each, `envs.plans.blocks`)."""
    sharing: Sharing = "split"
    """Whether replicas of a stage split each micro-batch, or take whole ones in turns."""
    shares: tuple[Shares, ...] = ()
    """By stage how many parts of each micro-batch its replicas take, such as ((3, 1), ()) where the first replica of
    stage 0 takes three of four; () for equally many, in a stage or in all."""
    update: Update = "step"
    """Weights are updated after the last micro-batch, or after each one, without a flush (PipeDream)."""
    all_reduce: AllReduceOrDefault = ""
    """How replicas sum up their gradients; empty: as the runtime of the problem does."""
    bucket_bytes: float = BUCKET_BYTES
    """Gradients of this size together are summed up as soon as all of them are there."""
    zero: Zero = 0
    """The stage of ZeRO: what replicas hold in n parts rather than in whole (`envs.expansion.sharded_states`).

    Of 1 optimizer state, of 2 gradients too, of 3 weights too, as PyTorch's FullyShardedDataParallel."""
    shard_group: int = 0
    """Of how many replicas, which follow one another, each group holds all parts; 0 for all replicas of a stage.

    Such as the devices of a server: what is held in parts is gathered within a group, and sums of gradients are added
    up over the groups (hybrid sharding: PyTorch's HYBRID_SHARD, MiCS)."""
    offload: bool = False
    """Whether weights are updated by the CPU nearest to their device, which has optimizer state and master copies.

    Gradients are sent to it once in a step, and new weights back (ZeRO-Offload, `envs.expansion.offloaded_updates`)."""

    def __post_init__(self) -> None:
        if not isinstance(self.micro_batches, int) or self.micro_batches < 1:
            raise InputError(
                f"a schedule has {self.micro_batches!r} micro-batches; expected a whole number, at least 1"
            )
        for key, values in (
            ("recompute_at", Recomputing),
            ("sharing", Sharing),
            ("update", Update),
            ("all_reduce", AllReduceOrDefault),
            ("zero", Zero),
        ):
            if getattr(self, key) not in get_args(values):
                raise InputError(
                    f"a schedule has {key} {getattr(self, key)!r}; expected {' or '.join(map(repr, get_args(values)))}"
                )
        if not isinstance(self.shard_group, int) or self.shard_group < 0 or self.shard_group == 1:
            raise InputError(f"a schedule has shard_group {self.shard_group!r}; expected at least 2 replicas, or 0")
        if self.shard_group and not self.zero:
            raise InputError(f"a schedule has shard_group {self.shard_group}, and no parts; say zero 1, 2 or 3")
        if not self.bucket_bytes > 0:
            raise InputError(f"a bucket of gradients has {self.bucket_bytes!r} bytes; expected more than 0")
        object.__setattr__(self, "recompute", tuple(sorted(set(self.recompute))))  # equal if they decide the same
        shares = tuple(map(least_shares, self.shares))
        object.__setattr__(self, "shares", shares if any(shares) else ())
        if self.shares and self.sharing == "turns":
            raise InputError("replicas that take turns compute whole micro-batches, and have no shares; leave them out")


def least_shares(shares: Shares) -> Shares:
    """The same shares in the least whole numbers, () if they are equal. Raises InputError for what is no share."""
    if wrong := [each for each in shares if not isinstance(each, int) or each < 1]:
        raise InputError(f"a replica has the share {wrong[0]!r}; expected a whole number of parts, at least 1")
    most = math.gcd(*shares)
    return tuple(each // most for each in shares) if len(set(shares)) > 1 else ()


WHOLE_BATCH = Schedule()  # of an op placement
