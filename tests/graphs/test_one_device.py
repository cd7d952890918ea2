"""What a model's code says of devices is left out, on machines with and without them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from graphs.capture.forward import capture, traced_model
from tests.forked import ended
from tests.graphs.small_modules import Small, of


def _within(m: Small, x: Tensor) -> Tensor:
    with torch.device("cuda"):
        return m.linear(x + torch.ones(4))  # type: ignore[no-any-return]


def _created(make: Callable[[str], Tensor], m: Small, x: Tensor) -> Tensor:
    return m.linear(x + make("cuda:1"))  # type: ignore[no-any-return]


def _exported(m: Small, x: Tensor) -> Tensor:
    y = m.linear(x)
    y[:, 0] = 1
    return m.linear(y.to("cuda:1"))  # type: ignore[no-any-return]


MOVING: dict[str, Callable[[Small, Tensor], Tensor]] = {
    "to": lambda m, x: m.linear(x.to("cuda:1")).to(x.device),
    "to, by number": lambda m, x: m.linear(x.to(1)),
    "to, by keyword": lambda m, x: m.linear(x.to(device="xpu", non_blocking=True)),
    "to, with a type": lambda m, x: m.linear(x.to(torch.device("cuda", 1), torch.float32)),
    "after a layer": lambda m, x: m.linear(m.linear(x).to("cuda:1")),
    "cuda": lambda m, x: m.linear(x.cuda(0)),
    "mps": lambda m, x: m.linear(x.to("mps")),
    "cpu": lambda m, x: m.linear(x).cpu(),
    "a module": lambda m, x: m.linear.to("cuda:1")(x),
    "within": _within,
    "zeros": lambda m, x: _created(lambda device: torch.zeros(4, device=device), m, x),
    "like": lambda m, x: _created(lambda device: torch.zeros_like(x, device=device), m, x),
    "new": lambda m, x: _created(lambda device: x.new_zeros(4, device=device), m, x),
    "tensor": lambda m, x: _created(lambda device: torch.tensor([1.0, 2.0, 3.0, 4.0], device=device), m, x),
    "of no device": lambda m, x: m.linear(x + torch.arange(4)),
    "of its input's device": lambda m, x: m.linear(x + torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device)),
    "exported": _exported,
}  # fmt: skip


def kinds_of(name: str, device: str) -> tuple[str, ...]:
    """The kinds of the ops of a module that moves, made on a device."""
    with torch.device(device):
        module, args = of(MOVING[name], torch.zeros(2, 4))()
        args = tuple(each.to(device) for each in args)
    return capture(module, args, name=name).kinds


def test_no_machine_needs_the_devices_and_on_meta_the_ops_are_the_same() -> None:
    """In a process of its own, which PyTorch would end."""
    code = (
        "import json; from tests.graphs.test_one_device import MOVING, kinds_of;"
        "print(json.dumps({name: [kinds_of(name, 'cpu'), kinds_of(name, 'meta')] for name in MOVING}))"
    )
    ran = ended(code)
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    for name, (on_cpu, on_meta) in found.items():
        assert on_cpu == on_meta or name == "exported", name  # the exporter writes a number elsewhere otherwise
        assert "aten._to_copy" not in on_cpu, name
        assert "aten.addmm" in on_cpu, name
    assert "to: its code puts tensors on cuda:1 at tests/graphs/test_one_device.py:" in ran.stderr


def test_weights_on_meta_take_inputs_that_have_data() -> None:
    with torch.device("meta"):
        module = nn.Linear(4, 4)
    assert capture(module, (torch.zeros(2, 4),), name="test").kinds == ("aten.addmm",)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there are such devices")
def test_a_model_may_be_made_on_devices_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "halves.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def model():\n"
        "    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).to('cuda:1')), torch.zeros(2, 4, device='cuda')\n"
    )
    assert traced_model(f"{tmp_path / 'halves.py'}:model").build().kinds == ("aten.addmm", "aten.addmm")
