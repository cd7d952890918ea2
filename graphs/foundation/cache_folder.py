"""The folder where placelab keeps what it can make again: captured graphs."""

import os
from pathlib import Path

from graphs.foundation.errors import InputError

VARIABLE = "PLACELAB_CACHE"


def cache_folder(kind: str) -> Path:
    """The user's folder of one kind of cached files, which may not exist yet.

    It is in the folder that the environment variable PLACELAB_CACHE names or, without that, where the system keeps the
    user's caches: ~/.cache/placelab on Linux, ~/Library/Caches/placelab on macOS. Raises InputError where there is no
    home.
    """
    if given := os.environ.get(VARIABLE):
        return Path(given).expanduser() / kind
    from platformdirs import user_cache_path  # imported late: most commands cache nothing

    try:
        folder = user_cache_path("placelab", appauthor=False)
    except RuntimeError:
        folder = Path()
    if not folder.is_absolute():  # in earlier versions of platformdirs, "~/.cache" stays what it is
        raise InputError(f"there is no home to keep a cache in; set {VARIABLE} to a folder")
    return folder / kind
