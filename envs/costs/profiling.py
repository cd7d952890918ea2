"""Profiling: the distinct ops of a captured graph are run on this machine, and a file keeps how long they take."""

import logging
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from msgspec.structs import replace as with_

from envs.costs.busy_machine import BusyGuard
from envs.costs.profile_file import ENDINGS, MeasuredOp, Profile, ProfiledMachine, load_profile, save_profile
from envs.costs.timing import OpTimer, RefusedError, torch_device
from graphs.capture.op_calls import CapturedCalls, DistinctOp, distinct_ops
from graphs.foundation.errors import InputError
from graphs.foundation.progress import progress

SAVE_SECONDS = 10.0  # at most this much work is lost if the machine goes down

_log = logging.getLogger("placelab")


def profile(captured: CapturedCalls, out: Path, *, repeats: int = 20, device: str = "") -> Profile:
    """Time the distinct ops of a graph on a torch device (the machine's GPU if it has one), into a file.

    A file that exists is extended: what was measured on this machine is not measured again, be it of an interrupted
    run or of other graphs. An op that PyTorch cannot run alone is kept as refused. A backward op for which autograd
    has no rule takes as long as its forward op, times the ratio of what the graph says they cost. A warning says if the
    machine was busy with something else, as far as a product shows that is timed between the ops. Raises InputError
    for a file of another name or machine, less than one repeat, an unknown device, or an op that does not fit in
    memory; KeyboardInterrupt, with what was measured in the file, if interrupted.
    """
    if repeats < 1:
        raise InputError(f"repeats is {repeats}; expected at least 1")
    if not out.name.endswith(ENDINGS):
        raise InputError(f"{out}: the name of a profile ends in {' or '.join(ENDINGS)}")
    timer = OpTimer(torch_device(device), repeats)
    distinct = distinct_ops(captured)
    _check_memory(distinct, timer)
    earlier = earlier_profile(out, timer.machine)
    profile = for_graph(earlier, captured.graph.name, distinct)
    return _measured(profile, captured.graph.name, distinct, timer, out)


def _measured(profile: Profile, graph: str, distinct: list[DistinctOp], timer: OpTimer, out: Path) -> Profile:
    """Measure what the profile does not hold; save every SAVE_SECONDS, and at the end whatever ended it."""
    held = {key_of(op) for op in profile.ops}
    todo = [op for op in distinct if key_of(op) not in held]
    ops, refused = list(profile.ops), dict(profile.refused)
    saved, guard = time.monotonic(), BusyGuard(lambda: [[timer.reference_seconds()]])

    def so_far() -> Profile:
        return with_(profile, date=datetime.now(UTC).isoformat(timespec="seconds"), ops=ops, refused=refused)

    try:
        for op in progress(todo, "profiling", unit="op"):
            guard.look_now_and_then()
            try:
                ops.append(_one(op, graph, timer))
                refused.pop(op.call.signature, None)
            except RefusedError as error:
                refused[op.call.signature] = str(error)
            if time.monotonic() - saved > SAVE_SECONDS:
                save_profile(so_far(), out)
                saved = time.monotonic()
    except KeyboardInterrupt:
        done = len(distinct) - len(todo) + len(ops) - len(profile.ops)
        raise KeyboardInterrupt(
            f"interrupted; {done} of {len(distinct)} distinct ops are in {out}, the same command resumes from there"
        ) from None
    finally:
        found = so_far()
        save_profile(found, out)
    if todo:
        guard.look()
    if warning := guard.warning(f"end other programs, remove {out} and profile again"):
        _log.warning(warning)
    return found


def _one(op: DistinctOp, graph: str, timer: OpTimer) -> MeasuredOp:
    """Time an op. Raises RefusedError if PyTorch can run neither it nor the forward op of a backward op."""
    how: Literal["measured", "scaled"] = "measured"
    try:
        sample, times = timer.run(op.call), 1.0
    except RefusedError:
        if op.call.gradients is None:
            raise
        sample, times, how = timer.run(replace(op.call, gradients=None)), op.times_forward, "scaled"
    return MeasuredOp(
        kind=op.call.kind, signature=op.call.signature, flops=op.flops, bytes_accessed=op.bytes_accessed,
        seconds=times * sample.seconds, spread=sample.spread, repeats=sample.repeats, how=how,
        ops={graph: list(op.names)},
    )  # fmt: skip


def earlier_profile(out: Path, machine: ProfiledMachine, *, in_step: bool = False) -> Profile:
    """What the file holds already, or nothing yet.

    Raises InputError if it was measured on another machine, or in another way: ops run alone, or in a step.
    """
    if not out.exists():
        return Profile(date="", machine=machine, ops=[])
    earlier = load_profile(out)
    if earlier.machine.described() != machine.described():
        raise InputError(
            f"{out} was measured on {earlier.machine.described()}, this is {machine.described()}; "
            "choose another file, or remove it"
        )
    if earlier.ops and earlier.is_of_steps != in_step:
        how = "in whole steps" if earlier.is_of_steps else "alone"
        raise InputError(f"{out} holds times of ops that were run {how}; choose another file, or remove it")
    return earlier


def for_graph(earlier: Profile, graph: str, distinct: list[DistinctOp]) -> Profile:
    """The earlier profile; of the graph, with the names of its ops as they are now."""
    names = {key_of(op): list(op.names) for op in distinct}
    ops = []
    for op in earlier.ops:
        others = {name: of for name, of in op.ops.items() if name != graph}
        ops.append(with_(op, ops=others | ({graph: names[key_of(op)]} if key_of(op) in names else {})))
    return with_(earlier, ops=ops)


def key_of(op: DistinctOp | MeasuredOp) -> tuple[str, float, float]:
    """What distinct ops differ in."""
    signature = op.signature if isinstance(op, MeasuredOp) else op.call.signature
    return signature, op.flops, op.bytes_accessed


def _check_memory(distinct: Iterable[DistinctOp], timer: OpTimer) -> None:
    there = timer.memory_bytes()
    for op in distinct:
        needed = 2 * sum(tensor.storage_bytes for tensor in op.call.tensors)  # as much is written as read
        if needed > there:
            raise InputError(
                f"op {op.names[0]!r} needs {needed / 2**30:.1f} GiB to be run alone, this {timer.kind} has "
                f"{there / 2**30:.1f} GiB; profile the model with a smaller batch"
            )
