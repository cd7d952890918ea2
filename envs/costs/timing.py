"""Timing of ops: one at a time is run alone on a device of this machine.

Every op is timed in the same way: tensors of its shapes, strides and types are filled with random numbers; a few calls
warm up; then samples are taken, each of as many calls as last a millisecond, and their lower quartile counts, which
other programs disturb less than the median.

On a processor with one thread the time is the thread's own, with several it is wall time. What an op reads is in a
cache if it fits there, as if another op had just written it. A backward op is timed as autograd's computation of its
gradients, less the time to start autograd, which a backward pass does once.

On a GPU it is what the device takes from one op to the next, when the host is far ahead (`stream_clock`); what the host
takes to issue ops is no part of it. Each call reads tensors of its own, more than the second-level cache holds.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from envs.costs import stream_clock
from envs.costs.profile_file import ProfiledMachine
from envs.costs.stream_clock import StreamClock
from graphs.capture.op_calls import OpCall, TensorLike
from graphs.foundation.errors import InputError
from graphs.foundation.machine import processor_name

WARM_UP = 3  # calls
SAMPLE_SECONDS = 1e-3  # the shortest sample that is trusted
OP_SECONDS = 2.0  # after this long an op gets no more than FEWEST samples
FEWEST = 3
MOST_CALLS = {"cpu": 10_000, "gpu": stream_clock.MOST_CALLS}  # of a sample
LOOK_REPEATS = 7  # samples of the reference by which a busy machine is noticed

# sides of the square product and bytes of the copy by which a device's own speed is measured
_PRODUCT = {"cpu": 1024, "gpu": 8192}
_COPY = {"cpu": 2**27, "gpu": 2**30}
_CACHES = 2  # as much as the second-level cache holds is read until the same tensors are read again
_CACHE = 2**26  # bytes of one, where PyTorch does not say it
_PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}  # in which a GPU has peaks of its own


class RefusedError(RuntimeError):
    """PyTorch cannot run an op alone; the message is its reason."""


@dataclass(frozen=True)
class Sample:
    """How long something took."""

    seconds: float  # of one call, the lower quartile
    spread: float  # interquartile range over the median
    repeats: int


class OpTimer:
    """A device that ops are run on."""

    def __init__(self, device: torch.device, repeats: int) -> None:
        self.device, self.repeats = device, repeats
        self.kind = "cpu" if device.type == "cpu" else "gpu"
        self._random = torch.Generator(device).manual_seed(0)
        self._square = torch.rand(_PRODUCT[self.kind], _PRODUCT[self.kind], device=device, generator=self._random)
        self._stream = None if self.kind == "cpu" else StreamClock.of(device)

    @cached_property
    def machine(self) -> ProfiledMachine:
        """The device and the speeds that it reaches."""
        side, size = _PRODUCT[self.kind], _COPY[self.kind]
        source, target = (torch.zeros(size // 4, device=self.device) for _ in range(2))
        one = torch.ones(1, device=self.device)
        launch = self.time(lambda: one + one).seconds
        leaf = one.clone().requires_grad_()
        negative = -leaf
        backward = self.time(lambda: torch.autograd.grad([negative], [leaf], [one], retain_graph=True)).seconds
        return ProfiledMachine(
            name=device_name(self.device),
            kind="cpu" if self.kind == "cpu" else "gpu",
            torch=str(torch.__version__),
            threads=torch.get_num_threads(),
            flops_per_second=2 * side**3 / self._product_seconds("ieee"),
            flops_by_precision={name: 2 * side**3 / seconds for name, seconds in self._in_precisions().items()},
            bytes_per_second=2 * size / self.time(lambda: target.copy_(source)).seconds,
            memory_bytes=float(self.memory_bytes()),
            launch_seconds=launch,
            autograd_seconds=0.0 if self._stream else max(backward - launch, 0.0),
            settings=_settings() if self._stream else (),
        )

    def _product_seconds(self, single: str, dtype: torch.dtype = torch.float32) -> float:
        """Of the product, whose tensors in single precision are multiplied as "ieee" or "tf32" says."""
        square = self._square.to(dtype)
        with _single_precision(single):
            return self.time(lambda: square @ square).seconds

    def _in_precisions(self) -> dict[str, float]:
        """Seconds of the product in the precisions in which a GPU may have peaks of its own."""
        if self._stream is None:
            return {}
        found = {name: self._product_seconds("ieee", dtype) for name, dtype in _PRECISIONS.items()}
        return found | ({"tf32": self._product_seconds("tf32")} if self.device.type == "cuda" else {})

    def run(self, call: OpCall) -> Sample:
        """Time an op.

        Raises RefusedError if PyTorch cannot run it alone, as where autograd has no rule for it; InputError if that
        says nothing of the op: its device ran out of memory, or does nothing any more.
        """
        try:
            sample = self.time(self._ready(call))
        except Exception as error:  # whatever an op raises
            reason = (str(error).strip() or type(error).__name__).partition("\n")[0]
            self._check_alive(call, error, reason)
            raise RefusedError(reason) from error
        if call.gradients is None:
            return sample
        launch, autograd = self.machine.launch_seconds, self.machine.autograd_seconds
        return replace(sample, seconds=max(sample.seconds - autograd, launch))

    def _check_alive(self, call: OpCall, error: Exception, reason: str) -> None:
        """Raise InputError if it was the device that failed, and not the op; a failed kernel fails all that follow."""
        if isinstance(error, torch.OutOfMemoryError):
            raise InputError(
                f"the {self.kind} has no memory left for {call.signature}: end what else is on it, or profile the "
                "model with a smaller batch"
            ) from error
        try:
            float(self._square[0, 0])
        except Exception as failure:  # whatever a device raises that has failed
            raise InputError(
                f"the {self.kind} does nothing any more since it was to run {call.signature} ({reason}): what was "
                "measured before is kept; the same command resumes"
            ) from failure

    def reference_seconds(self) -> float:
        """What a square product takes now, which is always the same."""
        return self.time(self._product, min(LOOK_REPEATS, self.repeats)).seconds

    def _product(self) -> Tensor:
        return self._square @ self._square

    def time(self, call: Callable[[], object], repeats: int = 0) -> Sample:
        """Warm up, then sample, as often as the timer was told unless another number is given."""
        started = time.perf_counter()
        once = [self._clocked(call, 1) for _ in range(WARM_UP)][-1]
        calls = int(np.clip(np.ceil(SAMPLE_SECONDS / max(once, 1e-9)), 1, MOST_CALLS[self.kind]))
        taken: list[float] = []
        while len(taken) < (repeats or self.repeats):
            taken.append(self._clocked(call, calls))
            if len(taken) >= FEWEST and time.perf_counter() - started > OP_SECONDS:
                break
        low, median, high = np.percentile(taken, [25, 50, 75])
        resolution = 1e-9  # of a clock
        return Sample(max(float(low), resolution), float(high - low) / max(float(median), resolution), len(taken))

    def _clocked(self, call: Callable[[], object], calls: int) -> float:
        if self._stream is not None:
            return self._stream.seconds(call, calls)
        clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
        started = clock()
        for _ in range(calls):
            call()
        return (clock() - started) / calls

    def _ready(self, call: OpCall) -> Callable[[], object]:
        """The op with tensors to work on, as a function that may be called many times."""
        first = self._with_tensors(call)
        if self._stream is None:
            return first
        size = max(sum(tensor.storage_bytes for tensor in call.tensors), 1)
        sets = int(np.clip(-(-_CACHES * self._cache_bytes() // size), 1, MOST_CALLS[self.kind]))
        several = cycle([first, *(self._with_tensors(call) for _ in range(sets - 1))])
        return lambda: next(several)()

    def _cache_bytes(self) -> int:
        """Of the second-level cache."""
        properties = torch.get_device_module(self.device).get_device_properties(self.device)
        return int(getattr(properties, "L2_cache_size", _CACHE))

    def _with_tensors(self, call: OpCall) -> Callable[[], object]:
        """The op with tensors of its own."""
        made: list[Tensor] = []

        def concrete(value: Any) -> Any:
            if isinstance(value, TensorLike):
                made.append(self._tensor(value))
                return made[-1]
            return self.device if isinstance(value, torch.device) else value

        args, kwargs = tree_map(concrete, (call.args, call.kwargs))
        if call.gradients is None:
            return lambda: call.function(*args, **kwargs)
        wanted = [made[position].requires_grad_() for position in call.gradients]
        results = call.function(*args, **kwargs)
        results = [results] if isinstance(results, Tensor) else [results[position] for position in call.outputs]
        results = [result for result in results if result.requires_grad]
        arriving = [torch.rand_like(result) for result in results]
        return lambda: torch.autograd.grad(results, wanted, arriving, retain_graph=True)

    def _tensor(self, like: TensorLike) -> Tensor:
        size = (like.elements,)
        if like.dtype.is_floating_point or like.dtype.is_complex:
            flat = torch.rand(size, device=self.device, dtype=like.dtype, generator=self._random)
        else:
            below = 2 if like.dtype == torch.bool else like.below
            flat = torch.randint(below, size, device=self.device, generator=self._random).to(like.dtype)
        return flat.as_strided(like.shape, like.stride)

    def memory_bytes(self) -> int:
        """The device's memory, used or not."""
        if self.kind == "gpu":
            return int(torch.accelerator.get_memory_info(self.device)[1])
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """PyTorch computes with `count` threads on a processor, or with its default number if none is given."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _single_precision(products: str) -> Iterator[None]:
    """CUDA's products of single-precision tensors are computed as "ieee" or "tf32" says."""
    settings = torch.backends.cuda.matmul
    before, settings.fp32_precision = settings.fp32_precision, products
    try:
        yield
    finally:
        settings.fp32_precision = before


def _settings() -> tuple[str, ...]:
    """What PyTorch was told, or does by default, that chooses kernels of a GPU."""
    told = {
        "TF32 in products": torch.backends.cuda.matmul.fp32_precision == "tf32",
        "TF32 in convolutions": torch.backends.cudnn.conv.fp32_precision == "tf32",  # type: ignore[attr-defined]
        "cuDNN's benchmark": torch.backends.cudnn.benchmark,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
    }
    return tuple(name for name, is_so in told.items() if is_so)


def device_name(device: torch.device) -> str:
    """That of the processor or GPU, as it is sold."""
    return processor_name() if device.type == "cpu" else torch.get_device_module(device).get_device_name(device)


def torch_device(name: str) -> torch.device:
    """The device of a name, a GPU with its number: the current one of "cuda". Raises InputError for what is not here.

    Without a name it is the machine's GPU, or else its processor.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    expected = f"expected cpu{f' or {accelerator}' if accelerator else ', or cuda on a machine with one'}"
    chosen = name or str(accelerator or "cpu")
    try:
        device = torch.empty(1, device=chosen).device
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"this machine has no device {chosen!r}; {expected}") from error
    if device.type not in ("cpu", accelerator.type if accelerator else "cpu"):
        raise InputError(f"ops cannot be run on {chosen!r}; {expected}")
    return device
