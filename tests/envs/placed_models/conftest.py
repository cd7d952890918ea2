"""What these tests share."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from envs.placed_models.whole_modules import WholeModuleCalls


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tensors of some hundred numbers gain nothing by more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules that ran whole, as they do."""
    found, own = list[str](), WholeModuleCalls._see_again

    def see_again(self: WholeModuleCalls, mode: Any, unseen: Any, *rest: Any) -> Any:
        found.append(type(unseen.part).__name__)
        return own(self, mode, unseen, *rest)

    monkeypatch.setattr(WholeModuleCalls, "_see_again", see_again)
    return found
