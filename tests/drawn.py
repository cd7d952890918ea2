"""How many examples tests draw: fewer in `make test` than in `make slow`, which takes the profile `thorough`."""

from hypothesis import settings

THOROUGH = "thorough"

settings.register_profile("brief", deadline=None, max_examples=25)  # a first example may compile what it needs
settings.register_profile(THOROUGH, deadline=None)


def examples(all_of_them: int, briefly: int) -> int:
    """`max_examples` of a test that takes seconds."""
    return all_of_them if settings.get_current_profile_name() == THOROUGH else briefly
