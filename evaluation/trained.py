"""Placers by text, the fine-tuned ones among them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from evaluation.comparison import FINETUNED
from graphs.errors import InputError
from placers import Placer
from placers.policies.trained import placer_of

if TYPE_CHECKING:
    from training.finetune import FineTuned, FineTuner


def load_placer(what: str) -> Placer:
    """The placer that a spec names, or the trained one in a folder; `X+finetuned` fine-tunes X before it answers.

    Raises InputError for what is none of these, and for X that cannot be fine-tuned.
    """
    if not what.endswith(FINETUNED):
        return placer_of(what)
    return finetuned(placer_of(what.removesuffix(FINETUNED)))


def finetuned(start: Placer, on_tuned: Callable[[FineTuned], None] | None = None) -> FineTuner:
    """A placer that spends its budget on fine-tuning another's policy; `on_tuned` receives what it found.

    Raises InputError for a placer that has no policy, or one that cannot be fine-tuned.
    """
    from training.finetune import FineTuner  # with torch, a second to import
    from training.train import Learned

    if not isinstance(start, Learned):
        raise InputError(f"{start.name!r} cannot be fine-tuned: it has no policy that PPO trains")
    return FineTuner(start, on_tuned=on_tuned)
