"""The device that is measured, the models that are run on it, and how a call is timed there."""

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from envs.costs.stream_clock import StreamClock
from envs.running.clock import finish
from graphs.capture.examples import example_of, with_data
from graphs.cluster import Cluster
from graphs.devices.catalogue import device as catalogue_device
from graphs.devices.catalogue import link

Row = dict[str, float | str]  # what was measured in one case; keys that end in "_ms", "_us", "_gib" name the unit

MODELS = {
    "transformer": "transformer:layers=8,width=1024,heads=16,sequence=512,batch=16", "bert": "bert:batch=32",
    "vit": "vit:batch=64", "llama": "llama", "resnet": "resnet:batch=64", "inception": "inception_v3:batch=32",
    "rnnlm": "rnnlm:layers=2,steps=20", "nmt": "nmt:layers=2,steps=8",
}  # fmt: skip
SMALL = {  # so small that the device waits for the host, and that a processor runs them in milliseconds
    "transformer": "transformer:layers=2,width=128,heads=4,sequence=64,batch=8,vocabulary=1000",
    "bert": "bert:layers=2,width=128,heads=2,sequence=32,batch=4",
    "vit": "vit:layers=2,width=64,heads=2,image=64,batch=4",
    "rnnlm": "rnnlm:layers=2,steps=4,hidden=128,batch=16,vocabulary=500",
}  # fmt: skip
TINY = {  # so small that a processor, too, takes no longer for a call than Python does
    "transformer": "transformer:layers=2,width=16,heads=2,sequence=8,batch=2,vocabulary=50",
    "bert": "bert:layers=2,width=16,heads=2,sequence=8,batch=2",
    "rnnlm": "rnnlm:layers=2,steps=4,hidden=16,batch=2,vocabulary=50",
}
DATA_TYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Card:
    """The device, its name in the catalogue, and whether only small models are run."""

    device: torch.device
    kind: str  # "h100"
    small: bool = False
    devices: tuple[str, ...] = ()  # further ones, for plans on several cards

    @property
    def is_gpu(self) -> bool:
        """Whether kernels run asynchronously, and events time them."""
        return self.device.type != "cpu"

    @property
    def models(self) -> dict[str, str]:
        """Family specs by name."""
        return SMALL if self.small else MODELS

    def cluster(self, count: int = 1) -> Cluster:
        """The catalogue's device, or several of them on PCIe."""
        lanes, device = link("pcie5x16"), catalogue_device(self.kind)
        return Cluster.uniform(
            self.kind, device, count, latency=lanes.latency_seconds, bandwidth=lanes.bandwidth, shared_out=True
        )

    def wait(self) -> None:
        """Until the device has done all that was issued."""
        finish(self.device)

    def wall_seconds(self, call: Callable[[], object], count: int = 8, warm: int = 2) -> float:
        """Median seconds from the call to its end on the device."""
        taken = []
        for number in range(warm + count):
            self.wait()
            began = time.perf_counter()
            call()
            self.wait()
            if number >= warm:
                taken.append(time.perf_counter() - began)
        return float(np.median(taken))

    def host_seconds(self, calls: Sequence[Callable[[], object]], count: int = 30, warm: int = 3) -> list[float]:
        """Seconds of the processor that each call takes: the least of all times, which take turns."""
        taken: list[list[float]] = [[] for _ in calls]
        for _ in range(warm + count):
            for call, seconds in zip(calls, taken, strict=True):
                self.wait()
                gc.collect(0)  # not within the call
                began = time.process_time()
                call()
                seconds.append(time.process_time() - began)
        return [min(seconds[warm:]) for seconds in taken]

    def kernel_seconds(self, call: Callable[[], object], count: int = 8) -> float:
        """Median seconds of what a call runs on the device, with other data in its caches, and the host far ahead."""
        if not self.is_gpu:
            return self.wall_seconds(call, count)
        other = torch.empty(2**26, device=self.device)  # 256 MiB, more than any second-level cache
        clock = replace(StreamClock.of(self.device), work=other.zero_)
        return float(np.median([clock.seconds(call, 1) for _ in range(3 + count)][3:]))

    def free(self) -> None:
        """Give back the memory of tensors that nobody holds any more."""
        gc.collect()
        if self.is_gpu:
            torch.accelerator.empty_cache()


class CardTraining:
    """A model with data on a device, and steps of training it."""

    def __init__(
        self,
        spec: str,
        device: torch.device,
        optimizer: str = "adam",
        weights: torch.dtype = torch.float32,
        autocast: torch.dtype | None = None,
    ) -> None:
        """Equal specs have equal weights and data. `weights` is the type of weights and inputs."""
        example = with_data(example_of(spec), 0, str(device))
        self.example, self.autocast, self.device = example, autocast, device
        self.module: nn.Module = example.module.to(device=device, dtype=weights)
        self.args, self.kwargs = tree_map_only(
            Tensor,
            lambda given: given.to(device=device, dtype=weights if given.is_floating_point() else given.dtype),
            (example.args, example.kwargs),
        )
        self.optimizer = self._optimizer(optimizer)

    def _optimizer(self, name: str) -> torch.optim.Optimizer | None:
        parameters = list(self.module.parameters())
        if name == "sgd":
            return torch.optim.SGD(parameters, 1e-4)
        return torch.optim.Adam(parameters, 1e-4, fused=True) if name == "adam" else None

    def loss(self) -> Tensor:
        """The sum of all outputs."""
        how = torch.autocast(self.device.type, self.autocast) if self.autocast else contextlib.nullcontext()
        with how:
            outputs = [each for each in tree_leaves(self.module(*self.args, **self.kwargs)) if isinstance(each, Tensor)]
            sums = [each.float().sum() for each in outputs if each.requires_grad]
            return torch.stack([each.to(sums[0].device) for each in sums]).sum()

    def step(self) -> None:
        """One step."""
        if self.optimizer:
            self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss()
        loss.backward()  # type: ignore[no-untyped-call]
        if self.optimizer:
            self.optimizer.step()


@contextlib.contextmanager
def precision(name: str) -> Iterator[torch.dtype]:
    """The type of tensors of "fp32", "tf32" or "bf16"; within, products of fp32 use TF32 if that is asked for."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name == "tf32"
    try:
        yield DATA_TYPES[name]
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
