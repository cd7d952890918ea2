"""Runnable: what of a captured model no plan can run, whatever its kind."""

from graphs.capture.examples import Example
from graphs.capture.known_values import FIRST_STEP
from graphs.capture.program import TracedProgram
from graphs.capture.tracing import hooked_weights
from graphs.foundation.errors import InputError


def check_runnable(example: Example, program: TracedProgram) -> None:
    """Raise InputError if a step of a model is not the one that was captured, or not known op by op."""
    if program.changed is None:
        raise InputError(
            f"{example.name}: the model was exported, as it cannot be recorded (a warning says why), so that its ops "
            "cannot be run by themselves; change what the warning names"
        )
    if program.by_values:
        raise InputError(
            f"{example.name}: sizes or control flow depend on data, and its ops are those of {program.by_values} "
            "alone, so that they cannot be run on other batches; placelab.parallelize runs the model's own code"
        )
    if (state := next((each for each in program.answers if each.data == FIRST_STEP), None)) is not None:
        raise InputError(
            f"{example.name}: sizes or control flow depend on data that the model changes{state.at}, and its ops are "
            f"those of {FIRST_STEP} alone; placelab.parallelize runs the model's own code"
        )
    if hooked := hooked_weights(example.module):
        raise InputError(
            f"{example.name}: the gradient of {hooked[0]!r} has a hook, which is not captured; train in your own "
            "loop, with `parallelize`, or without the hook"
        )
    for name, node in program.changed.items():
        if node is None or name in program.names.values():
            how = "through a view of it" if node is None else "by its forward pass"
            raise InputError(
                f"{example.name}: {name!r} is changed {how}, so that its ops cannot be run apart; train in your own "
                "loop, "
                "with `parallelize`"
            )
