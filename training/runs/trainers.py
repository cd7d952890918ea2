"""Which trainer a learned placer declares: one of placelab's, or a class of the placer's own file or package."""

from collections.abc import Mapping
from inspect import unwrap
from typing import Any

import msgspec

from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from graphs.foundation.wrong_documents import explained
from placers.learned.learned_placer import PolicyPlacer
from placers.learned.lookup import learned_module, learned_placers, trainer_of
from placers.learned.settings import Settings
from training.learning.ppo import PpoTrainer
from training.learning.reinforce import ReinforceTrainer
from training.learning.trainer import Trainer
from training.learning.whole_plans import WholePlansTrainer
from training.recipe import OWN_SECTION, SECTIONS, Recipe

TRAINERS: dict[str, type[Trainer]] = {  # by what placers declare
    "ppo": PpoTrainer,
    "reinforce": ReinforceTrainer,
    "whole_plans": WholePlansTrainer,
}


def trainer_and_module(placer: str) -> tuple[type[Trainer], Any]:
    """What trains a placer's policies, and what has its `new_policy` and `build`. A user's own file runs.

    Raises InputError for a placer that cannot be trained.
    """
    declared = trainer_of(placer)
    if not declared and by_name.own(placer):
        raise InputError(
            f"placer {placer!r} cannot be trained: its file has no TRAINER, one of {', '.join(TRAINERS)} or, in "
            "quotes, the name of a trainer of its own; give it that and `new_policy`, as docs/how-to/extend.md says"
        )
    if not declared:
        raise InputError(f"placer {placer!r} cannot be trained; there are: {', '.join(learned_placers())}")
    if declared in TRAINERS:
        return TRAINERS[declared], learned_module(placer)
    module = learned_module(placer, declared)
    found: Any = getattr(module, declared, None)
    found = unwrap(found)  # in a user's file `user_callables` has wrapped it
    if not (isinstance(found, type) and issubclass(found, Trainer)):
        raise InputError(
            f"placer {placer!r}: TRAINER is {declared!r}; expected one of {', '.join(TRAINERS)}, or the name of a "
            "subclass of training.learning.trainer.Trainer next to it"
        )
    return found, module


def fine_tuner_of(placer: PolicyPlacer[Any], policy: object) -> type[Trainer]:
    """What fine-tunes a policy. Raises InputError for a policy that names none of placelab's trainers."""
    named = getattr(policy, "trainer", "")
    if named not in TRAINERS:
        raise InputError(
            f"{placer.name!r} is not fine-tuned: the class of its policy has no `trainer`, one of "
            f"{', '.join(TRAINERS)}; place without fine-tuning"
        )
    return TRAINERS[named]


def settings_of(recipe: Recipe, kind: type[Trainer]) -> Settings:
    """What a recipe gives a trainer.

    One of a user's own reads the section [trainer] if it has a `settings_type`, and what the trainer reads that it
    extends. Raises InputError for other sections, and for values that are not of that type.
    """
    if kind in TRAINERS.values():
        return recipe.settings
    read = {name for key, extended in TRAINERS.items() if issubclass(kind, extended) for name in SECTIONS[key]}
    own = kind.settings_type
    recipe.check_sections({*read, OWN_SECTION} if own else read)
    return msgspec.structs.replace(recipe.settings, own=own and _converted(recipe.trainer, own))


def _converted(given: Mapping[str, Any], kind: type[msgspec.Struct]) -> msgspec.Struct:
    """The section as a struct of the user's."""
    for key in given:
        if key not in kind.__struct_fields__:
            raise InputError(by_name.unknown(f"key of [{OWN_SECTION}]", key, kind.__struct_fields__))
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{OWN_SECTION}.{explained(error, given, kind)}") from error
