"""Plain numbers in a file whose unit was forgotten: a memory of 24, which is 24 bytes, next to 9.3 TFLOP/s.

Files may give plain numbers of FLOP/s, bytes/s, bytes and seconds. One that no device or link has ever had is taken for
a slip where another number of the file is that of a real one. A file in units of its own, where a device computes 1
FLOP/s and sends 2 bytes/s, as in the examples of papers, has none.
"""

from collections.abc import Iterator
from typing import Any

from graphs.devices.catalogue import QUANTITIES
from graphs.foundation.errors import InputError
from graphs.foundation.quantities import INFINITE, SLOWEST, is_rate, lacks_unit, parse
from graphs.host import SECONDS

UNITS = {key: unit for key, _, unit in QUANTITIES} | {"bandwidth": "bytes/s", "latency": "seconds", "gap": "seconds"}
UNITS |= dict.fromkeys(SECONDS, "seconds")  # of a host
_MEANT = {"bytes": "GiB", "bytes/s": "GB/s", "FLOP/s": "TFLOP/s", "seconds": "us"}
_PLAIN = {"bytes": "B", "bytes/s": "B/s", "FLOP/s": "FLOP/s", "seconds": "s"}


def check_units(document: Any, *, is_real: bool) -> None:
    """Raise InputError for the first plain number of a document that has lost its unit.

    `document` is the content of a file, as dictionaries and lists, whose quantities were read before; `is_real` says
    that it has devices of the catalogue.
    """
    numbers = list(_quantities(document, ""))
    rates = (parse(given, unit) for _, given, unit in numbers if is_rate(unit) and given != INFINITE)
    if not is_real and all(rate < SLOWEST for rate in rates):
        return
    for place, given, unit in numbers:
        if lacks_unit(given, unit):
            raise InputError(
                f"{place}: {given:g} without a unit is {given:g} {unit}; give the unit, as in "
                f"'{given:g}{_MEANT[unit]}', or '{given:g}{_PLAIN[unit]}' if that is meant"
            )


def _quantities(document: Any, place: str) -> Iterator[tuple[str, float | str, str]]:
    """The quantities of a document, by their places in it, each with its unit."""
    if isinstance(document, list):
        for i, value in enumerate(document):
            yield from _quantities(value, f"{place}[{i}]")
    elif isinstance(document, dict):
        for key, value in document.items():
            inner = f"{place}.{key}".lstrip(".")
            if key in UNITS and not isinstance(value, dict):
                given = value if isinstance(value, list) else [value]
                yield from ((inner, each, UNITS[key]) for each in given if each is not None)
            else:
                yield from _quantities(value, inner)
