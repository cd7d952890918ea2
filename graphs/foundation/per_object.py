"""What a function finds for an object is kept as long as the object lives, for those who ask again."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

Key = TypeVar("Key")
Found = TypeVar("Found")


def once_per_object(function: Callable[[Key], Found]) -> Callable[[Key], Found]:
    """A function that is called once for each object, which has no equality but its identity and does not change.

    What it finds must not refer to the object, which would then never be freed, and is not to be written.
    """
    known: WeakKeyDictionary[Key, Found] = WeakKeyDictionary()

    @wraps(function)
    def found(of: Key) -> Found:
        if of not in known:
            known[of] = function(of)
        return known[of]

    return found
