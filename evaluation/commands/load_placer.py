"""Placers by text: the fine-tuned ones, several with commas between them, and all that need no training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.comparing.comparison import FINETUNED
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from placers.contract.placer import Placer
from placers.learned.lookup import placer_of, trainer_of

if TYPE_CHECKING:
    from training.runs.finetune import FineTuned, FineTuner


def classical_placers() -> list[str]:
    """Every built-in placer that needs no training, and is quick enough for any graph."""
    left_out = {"LEARNED", "TRAINER", "BY_REQUEST"}
    return [name for name in by_name.built_in("placers") if not left_out & set(by_name.constants("placers", name))]


def chosen_placers(
    given: Sequence[str | Path | Placer], otherwise: Sequence[str], *, micro_batches: int | None = None
) -> list[Placer]:
    """Placers as they are, by spec, or several specs with commas between them; without any, others.

    Raises InputError for a spec that names none, and as `with_micro_batches`.
    """
    named = [spec for one in given for spec in (by_name.specs(one) if isinstance(one, str) else [one])]
    return [load_placer(one) for one in with_micro_batches(named or otherwise, micro_batches)]


def load_placer(what: str | Path | Placer) -> Placer:
    """A placer as it is, by its spec, or the trained one in a folder.

    `X+finetuned` fine-tunes X on each problem; a kind of policy without a checkpoint, as in `gdp+finetuned`, learns
    from scratch. Raises InputError for what is none of these, and for X that cannot be fine-tuned.
    """
    if not isinstance(what, str | Path):
        return what
    what = str(what)
    if not what.endswith(FINETUNED):
        return placer_of(what)
    spec = what.removesuffix(FINETUNED)
    if not trainer_of(spec.partition(":")[0]) or {"checkpoint", "untrained"} & by_name.parse(spec)[1].keys():
        return finetuned(placer_of(spec))
    start: Any = by_name.build("placers", f"{spec}{',' if ':' in spec else ':'}untrained=yes")
    named = replace(start, name=start.name.removesuffix("untrained=yes").rstrip(":,"))
    return replace(finetuned(named), from_scratch=True)


def divides_batch(placers: Iterable[Placer]) -> bool:
    """Whether plans of one of them may divide the batch, into micro-batches or among replicas.

    A placer of such plans says so, `divides_batch = True`: what grows with the batch is then found out for it.
    """
    return any(getattr(getattr(placer, "built", placer), "divides_batch", False) for placer in placers)


def with_micro_batches(given: Sequence[str | Path | Placer], count: int | None) -> list[str | Path | Placer]:
    """Placers' specs with as many micro-batches, of those that plan them and do not say how many; the others as is.

    Raises InputError if none plans them.
    """
    if count is None:
        return list(given)
    found = [_divided(what, count) for what in given]
    if not any(found):
        names = ", ".join(str(getattr(what, "name", what)) for what in given)
        raise InputError(
            f"{names}: plans no micro-batches; leave out `micro_batches={count}`, or take a placer that has such a "
            "knob, as gpipe does"
        )
    return [what if spec is None else spec for what, spec in zip(given, found, strict=True)]


def _divided(what: str | Path | Placer, count: int) -> str | None:
    """The spec with as many micro-batches, unless it says how many; None for what plans none."""
    if not isinstance(what, str) or what.endswith(FINETUNED) or Path(what).is_dir():
        return None
    knobs = by_name.knobs("placers", what)
    if "micro_batches" not in knobs:
        return None
    return what if "micro_batches=" in what else f"{what}{',' if ':' in what else ':'}micro_batches={count}"


def finetuned(
    start: Placer, on_tuned: Callable[[FineTuned], None] | None = None,
    on_progress: Callable[[int, float], None] | None = None,
) -> FineTuner:  # fmt: skip
    """A placer that spends its budget on fine-tuning another's policy; the functions are `FineTuner`'s.

    Raises InputError for a placer that has no policy, or one that cannot be fine-tuned.
    """
    from placers.learned.learned_placer import PolicyPlacer  # with torch, a second to import
    from training.runs.finetune import FineTuner

    if not isinstance(start, PolicyPlacer):
        raise InputError(
            f"{start.name!r} cannot be fine-tuned: it has no policy that can be trained; take 'default', or the "
            "folder of "
            "a run of `placelab train`"
        )
    return FineTuner(start, on_tuned=on_tuned, on_progress=on_progress)
