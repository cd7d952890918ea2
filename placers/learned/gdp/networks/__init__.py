"""Networks: each file's `build` returns a module from a Batch to logits (problems, units, devices)."""

from graphs.foundation.errors import InputError


def checked(spec: str, built: object) -> object:
    """What `build` of a user's file or of another package returned. Raises InputError for what is no torch module."""
    if not hasattr(built, "named_parameters"):
        raise InputError(f"{spec!r}: expected a torch module, got {type(built).__name__}")
    return built
