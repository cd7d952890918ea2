"""Which examples tests draw: few and always the same in `make test`; in `make slow`, with the profile `thorough`, more
and others each time, so that it finds what nobody has thought of, and `make test` says the same of the same sources.
"""

from typing import TypeVar

from hypothesis import settings

Examples = TypeVar("Examples")
THOROUGH = "thorough"

# no deadline: a first example may compile what it needs
settings.register_profile("brief", deadline=None, max_examples=15, derandomize=True)
settings.register_profile(THOROUGH, deadline=None)


def examples(all_of_them: Examples, briefly: Examples) -> Examples:
    """`max_examples` of a test that takes seconds; without hypothesis, the cases of one marked `drawn`, or how many."""
    return all_of_them if settings.get_current_profile_name() == THOROUGH else briefly
