"""How ops are timed on a GPU, on one that is made up: a host that issues, and a device that works that off."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from envs.costs import timing
from envs.costs.profile_file import Profile, load_profile, save_profile
from envs.costs.profiling import profile
from envs.costs.stream_clock import MOST_WORK, StreamClock
from envs.costs.timing import OpTimer, Sample
from graphs.capture.op_calls import OpCall, TensorLike, load_calls
from graphs.foundation.errors import InputError

TWO_TOWERS = f"{Path(__file__).parents[1] / 'fixtures' / 'user_module.py'}:two_towers"
WORK = 300e-6  # seconds that the device takes for what it does meanwhile
FORWARD, BACKWARD = 5e-6, 25e-6  # seconds in which a host issues an op, and starts autograd


@dataclass
class MadeUpGPU:
    """Its two clocks, in seconds."""

    host: float = 0.0
    device: float = 0.0
    works: int = 0

    def issue(self, host: float, kernel: float) -> None:
        self.host += host
        self.device = max(self.device, self.host) + kernel

    def wait(self) -> None:
        self.host = max(self.host, self.device)

    def work(self) -> None:
        self.works += 1
        self.issue(FORWARD, WORK)

    def clock(self) -> StreamClock:
        return StreamClock(lambda: MadeUpEvent(self, max(self.device, self.host)), self.work)


@dataclass
class MadeUpEvent:
    gpu: MadeUpGPU
    reached: float

    def query(self) -> bool:
        return self.gpu.host >= self.reached

    def synchronize(self) -> None:
        self.gpu.host = max(self.gpu.host, self.reached)

    def elapsed_time(self, other: Any, /) -> float:
        return 1e3 * float(other.reached - self.reached)


@dataclass
class Recorded:
    """An operation that takes the device as long as it is told, and knows which tensors it has read."""

    gpu: MadeUpGPU
    host: float = FORWARD
    kernel: float = 20e-6
    read: list[int] = field(default_factory=list)

    def __call__(self, tensor: Tensor) -> Tensor:
        self.gpu.issue(self.host, self.kernel)
        self.read.append(tensor.data_ptr())
        return tensor


@pytest.fixture
def gpu() -> MadeUpGPU:
    return MadeUpGPU()


@pytest.fixture
def timer(gpu: MadeUpGPU, monkeypatch: pytest.MonkeyPatch) -> OpTimer:
    """A timer of ops on it."""
    monkeypatch.setattr(timing, "_PRODUCT", {"cpu": 32, "gpu": 32})
    monkeypatch.setitem(timing._COPY, "gpu", 2**10)
    monkeypatch.delitem(timing._PRECISIONS, "fp16")  # in which processors are slow
    monkeypatch.setattr(timing, "device_name", lambda device: "Made-up 100")
    monkeypatch.setattr(OpTimer, "memory_bytes", lambda timer: 2**34)
    monkeypatch.setattr(OpTimer, "_cache_bytes", lambda timer: 2**20)
    made = OpTimer(torch.device("cpu"), 5)
    made.kind, made._stream = "gpu", gpu.clock()
    return made


@pytest.mark.parametrize("host", [FORWARD, BACKWARD])
@pytest.mark.parametrize("kernel", [2e-6, 5e-6, 10e-6, 20e-6, 30e-6, 50e-6, 100e-6, 300e-6])
def test_a_kernel_takes_what_the_device_takes_however_long_the_host_does(
    gpu: MadeUpGPU, timer: OpTimer, host: float, kernel: float
) -> None:
    assert timer.time(lambda: gpu.issue(host, kernel)).seconds == pytest.approx(kernel)


def test_an_operation_that_waits_for_the_device_is_timed_with_its_waiting(gpu: MadeUpGPU) -> None:
    def nonzero() -> None:
        gpu.issue(FORWARD, 20e-6)
        gpu.wait()

    assert gpu.clock().seconds(nonzero, 10) == pytest.approx(FORWARD + 20e-6, rel=0.1)
    assert gpu.works == 2 * MOST_WORK - 1  # 1 + 2 + 4 + ..., no more


@pytest.mark.parametrize(("elements", "sets"), [(2**14, 32), (2**19, 1), (1, 100)])  # of four bytes each
def test_calls_read_more_than_the_cache_holds_until_they_read_the_same(
    gpu: MadeUpGPU, timer: OpTimer, elements: int, sets: int
) -> None:
    operation = Recorded(gpu, kernel=10e-6)
    timer.run(OpCall("aten.op", operation, (TensorLike((elements,), (1,), torch.float32),), {}))
    assert len(set(operation.read)) == sets
    assert operation.read[: 2 * sets] == operation.read[:sets] * 2


def test_nothing_is_subtracted_from_what_a_gradient_takes(gpu: MadeUpGPU, timer: OpTimer) -> None:
    matrix = TensorLike((4, 4), (4, 1), torch.float32)

    class Gradient(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, tensor: Tensor) -> Tensor:
            return tensor.clone()

        @staticmethod
        def backward(ctx: object, *gradients: Tensor) -> Tensor:
            gpu.issue(BACKWARD, 10e-6)
            return gradients[0]

    call = OpCall("aten.op.grad", Gradient.apply, (matrix,), {}, gradients=(0,), outputs=(0,))
    assert timer.run(call).seconds == pytest.approx(10e-6)
    assert timer.machine.autograd_seconds == 0


def test_the_machine_has_peaks_by_precision_and_the_settings_that_choose_kernels(
    gpu: MadeUpGPU, timer: OpTimer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    timer.device = torch.device("cpu")
    seconds = {"ieee": 8e-3, "tf32": 2e-3}

    def time(timer: OpTimer, call: object, repeats: int = 0) -> Sample:
        return Sample(seconds[str(torch.backends.cuda.matmul.fp32_precision).replace("none", "ieee")], 0.0, 1)

    monkeypatch.setattr(OpTimer, "time", time)
    machine = timer.machine
    assert machine.flops_per_second == 2 * 32**3 / 8e-3
    assert set(machine.device().flops_by_precision) == {"bf16"}  # TF32 is CUDA's
    assert timer._product_seconds("tf32") == 2e-3
    assert torch.backends.cuda.matmul.fp32_precision == before
    assert machine.settings == ("TF32 in convolutions",)  # PyTorch's default
    assert machine.described() == f"Made-up 100 (gpu, torch {torch.__version__}, TF32 in convolutions)"


def test_a_profile_under_other_settings_is_left_alone(
    timer: OpTimer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envs.costs.profiling.OpTimer", lambda device, repeats: timer)
    path = tmp_path / "x.profile.json"
    save_profile(Profile(date="", machine=replace(timer.machine, settings=("TF32 in products",)), ops=[]), path)
    with pytest.raises(InputError, match=r"TF32 in products\), this is .*TF32 in convolutions\); choose another"):
        profile(load_calls(TWO_TOWERS), path, device="cpu")


@pytest.mark.parametrize(
    ("error", "is_alive", "sentence"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True, r"no memory left for aten\.mm.*a smaller batch"),
        (RuntimeError("CUDA error: device-side assert"), False, r"nothing any more since it was to run aten\.mm"),
    ],
)
def test_a_device_that_fails_is_no_op_that_is_refused(
    timer: OpTimer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, is_alive: bool, sentence: str
) -> None:
    def fails(call: OpCall) -> object:
        if not is_alive:
            timer._square = torch.empty(32, 32, device="meta")  # which has no values
        if call.kind == "aten.mm":
            raise error
        return lambda: None

    path = tmp_path / "x.profile.json"
    monkeypatch.setattr("envs.costs.profiling.OpTimer", lambda device, repeats: timer)
    monkeypatch.setattr(OpTimer, "reference_seconds", lambda timer: 1.0)
    monkeypatch.setattr(timer, "_ready", fails)
    assert timer.machine  # measured before it fails
    with pytest.raises(InputError, match=sentence):
        profile(load_calls(TWO_TOWERS, training=False), path, device="cpu")
    assert not load_profile(path).refused
