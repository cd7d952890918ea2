"""Placers by text, the fine-tuned ones among them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.comparison import FINETUNED
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from placers.contract.placer import Placer
from placers.learned.load import placer_of, trainer_of

if TYPE_CHECKING:
    from training.finetune import FineTuned, FineTuner


def load_placer(what: str | Path | Placer) -> Placer:
    """The placer that is given, that a spec names, or the trained one in a folder.

    `X+finetuned` fine-tunes X before it answers.

    A kind of policy without a checkpoint, as in `gdp+finetuned`, so learns from scratch.
    Raises InputError for what is none of these, and for X that cannot be fine-tuned.
    """
    if not isinstance(what, str | Path):
        return what
    what = str(what)
    if not what.endswith(FINETUNED):
        return placer_of(what)
    spec = what.removesuffix(FINETUNED)
    if not _is_untrained(spec):
        return finetuned(placer_of(spec))
    start: Any = by_name.build("placers", f"{spec}{',' if ':' in spec else ':'}untrained=yes")
    named = replace(start, name=start.name.removesuffix("untrained=yes").rstrip(":,"))
    return replace(finetuned(named), from_scratch=True)


def _is_untrained(spec: str) -> bool:
    """Whether a spec names a kind of policy and no policy: fine-tuning it is learning from scratch."""
    return bool(trainer_of(spec.partition(":")[0])) and not {"checkpoint", "untrained"} & by_name.parse(spec)[1].keys()


def finetuned(start: Placer, on_tuned: Callable[[FineTuned], None] | None = None) -> FineTuner:
    """A placer that spends its budget on fine-tuning another's policy; `on_tuned` receives what it found.

    Raises InputError for a placer that has no policy, or one that cannot be fine-tuned.
    """
    from placers.learned.learned_placer import LearnedPlacer  # with torch, a second to import
    from training.finetune import FineTuner

    if not isinstance(start, LearnedPlacer):
        raise InputError(f"{start.name!r} cannot be fine-tuned: it has no policy that can be trained")
    return FineTuner(start, on_tuned=on_tuned)
