"""What a module that runs whole is given: copies of what lies elsewhere, unless it may change or keep that."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from envs.placed_models import parallel
from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.foundation.errors import InputError
from tests.envs.placed_models.models import BATCH, assert_same_steps, by_modules, step
from tests.envs.placed_models.streams_recorder import RecordedStreams, Recorder


class Cell(nn.Module):
    """A part that is given a tensor in a list, which it changes, or in a tuple, or keeps it."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.one, self.how = nn.Linear(4, 4), how
        self.kept: list[Tensor] = []

    def forward(self, given: Any) -> Tensor:
        x = given[0]
        if self.how == "in place":
            x.mul_(2)
        y: Tensor = self.one(torch.tanh(x)).neg().mul(2)
        if self.how == "list":
            given.append(y)
        if self.how == "doubles":
            x.register_hook(lambda gradient: gradient * 2)
        if self.how == "keeps":
            self.kept = [x]
        return y


class Cells(nn.Module):
    """What such a part reads is on another device, and is changed later."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.begin, self.cell = nn.Linear(4, 4), Cell(how)

    def forward(self, x: Tensor) -> Tensor:
        x = self.begin(x)
        given: Any = (x, None) if self.cell.how != "list" else [x]
        y: Tensor = self.cell(given)
        with torch.no_grad():
            x.add_(1)
        last: Tensor = given[-1] if self.cell.how == "list" else self.cell.kept[0] if self.cell.kept else x
        z: Tensor = self.begin(last.detach())
        return z + y


@pytest.mark.parametrize("how", ["tuple", "list", "keeps"])
def test_what_a_module_is_given_is_copied_unless_it_may_be_changed_or_kept(how: str, whole: list[str]) -> None:
    torch.manual_seed(0)
    model = Cells(how)
    graph = training_step(capture(model, (torch.ones(BATCH, 4),), name="cells"))
    parallel = by_modules(model, graph, lambda path: int(path.startswith("cell")))
    for _ in range(3):
        assert_same_steps((model, parallel))
    assert whole == (["Cell"] * 2 if how == "tuple" else [])


class Forked(nn.Module):
    """What another device reads is read by a part, too."""

    def __init__(self) -> None:
        super().__init__()
        self.begin, self.far, self.near = nn.Linear(4, 4), nn.Linear(4, 4), Cell("tuple")

    def forward(self, x: Tensor) -> Tensor:
        x = self.begin(x)
        y, z = self.far(x), self.near((x,))
        return cast(Tensor, self.far(z) + y)


def test_a_change_of_what_may_be_on_its_way_is_refused_where_there_was_none(monkeypatch: pytest.MonkeyPatch) -> None:
    model, recorder = Forked(), Recorder(3)
    graph = training_step(capture(model, (torch.ones(BATCH, 4),), name="forked"))
    monkeypatch.setattr(parallel, "SideStreams", lambda devices: RecordedStreams(devices, recorder))
    run = by_modules(
        model, graph, lambda path: int(path.startswith("far")), runtime="parallelize:host=none,defer=false"
    )
    for _ in range(2):
        step(run, torch.ones(BATCH, 4))
    assert recorder.copies
    run.near.how = "in place"  # type: ignore[union-attr]
    with pytest.raises(InputError, match="Cell has changed what it was given, which is being copied, which it did not"):
        run(torch.ones(BATCH, 4))
    with torch.no_grad():
        run(torch.ones(BATCH, 4))


KEPT: dict[str, Tensor] = {}


def _hooked_as_it_ends(model: Any) -> None:
    model.cell.register_forward_hook(lambda _part, given, _out: KEPT.update(x=given[0][0]))


def _hooked_as_it_begins(model: Any) -> None:
    model.cell.register_forward_pre_hook(lambda _part, given: KEPT.update(x=given[0][0]))


@pytest.mark.parametrize("keep", [_hooked_as_it_ends, _hooked_as_it_begins])
@pytest.mark.parametrize("since", ["first step", "third step"])
def test_what_is_kept_anywhere_of_what_a_module_is_given_is_no_copy(keep: Any, since: str, whole: list[str]) -> None:
    torch.manual_seed(0)
    model = Cells("tuple")
    graph = training_step(capture(model, (torch.ones(BATCH, 4),), name="cells"))
    if since == "first step":
        keep(model)
    models = model, by_modules(model, graph, lambda path: int(path.startswith("cell")))
    for number in range(4):
        if number == 2 and since == "third step":
            for each in models:
                keep(each)
        found = []
        for each in models:
            step(each, torch.ones(BATCH, 4))
            found.append(KEPT.pop("x", torch.ones(0)).detach().clone())  # which has been changed since
        torch.testing.assert_close(*found)
    shows_copies = since == "third step" or keep is _hooked_as_it_ends
    assert len(whole) == (3 if not shows_copies else 1 if since == "third step" else 0)


def test_a_hook_on_the_gradient_of_what_a_module_is_given_is_refused_where_there_was_none() -> None:
    torch.manual_seed(0)
    model = Forked()
    graph = training_step(capture(model, (torch.ones(BATCH, 4),), name="forked"))
    models = model, by_modules(model, graph, lambda path: int(path.startswith("near")))
    for _ in range(2):
        assert_same_steps(models)
    for each in models:
        each.near.how = "doubles"  # type: ignore[union-attr]
    with pytest.raises(InputError, match="Cell has asked for the gradient of what it was given"):
        step(models[1], torch.ones(BATCH, 4))
    for _ in range(2):
        assert_same_steps(models)
