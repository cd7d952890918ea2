"""Quantities with units, as people write them: "16GiB", "732GB/s", "9.3TFLOP/s", "10us"; and as fields of files."""

import math
import re
import unicodedata
from typing import Annotated

import msgspec
import numpy as np

from graphs.foundation.errors import InputError, located

INFINITE = "inf"  # a bandwidth or a memory that does not matter


def said(description: str, *examples: float | str) -> msgspec.Meta:
    """What a field of a file means, for its JSON schema."""
    return msgspec.Meta(description=description, examples=list(examples))


# Fields of files, to be read by `quantity`.
Flops = Annotated[float | str, said("FLOP/s > 0", "9.3TFLOP/s", 9.3e12)]
Speed = Annotated[float | str, said("bytes/s > 0", "732GB/s", "25Gbit/s", 7.32e11, INFINITE)]
Size = Annotated[float | str, said("bytes >= 0", "16GiB", "16GB", 1.6e10, INFINITE)]
Time = Annotated[float | str, said("seconds >= 0", "10us", 1e-5)]

Scale = tuple[int, float]  # a power of ten, and a factor


def _prefixed(unit: str, factor: float = 1.0, *, binary: bool = True) -> dict[str, Scale]:
    decimal = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
    powers_of_two = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40} if binary else {}
    symbols: dict[str, Scale] = {f"{prefix}{unit}": (power, factor) for prefix, power in decimal.items()}
    return symbols | {f"{prefix}{unit}": (0, factor * size) for prefix, size in powers_of_two.items()}


_SYMBOLS: dict[str, dict[str, Scale]] = {
    "bytes": _prefixed("B"),
    "bytes/s": _prefixed("B/s") | _prefixed("bit/s", 0.125) | _prefixed("bps", 0.125),
    "FLOP/s": _prefixed("FLOP/s", binary=False),
    "seconds": {"s": (0, 1.0), "ms": (-3, 1.0), "us": (-6, 1.0), "μs": (-6, 1.0), "ns": (-9, 1.0)},
}
_EXAMPLES = {"bytes": "16GiB", "bytes/s": "732GB/s", "FLOP/s": "9.3TFLOP/s", "seconds": "10us"}
SLOWEST = 1e6  # FLOP/s, or bytes/s: what is slower is no device, and no link
_READABLE = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zμ/]+)")


def parse(given: float | str, unit: str) -> float:
    """A number of `unit` ("bytes", "bytes/s", "FLOP/s" or "seconds"), from a plain number or text with a unit.

    Decimal prefixes are k, M, G, T, P, binary ones Ki, Mi, Gi, Ti; bandwidths may be in bits, "25Gbit/s". Letters that
    Unicode takes for the same are the same, as the micro sign and the Greek mu are, and a space may be any.
    Raises InputError for anything else.
    """
    if not isinstance(given, str):
        return float(given)
    match = _NUMBER.fullmatch(unicodedata.normalize("NFKC", given).strip())  # of the two letters mu, it keeps the Greek
    scale = _SYMBOLS[unit].get(match[2].replace("FLOPS", "FLOP/s")) if match else None
    if match is None or scale is None:
        example = _EXAMPLES[unit]
        raise InputError(f"expected a number of {unit} without quotes, or text such as {example!r}, got {given!r}")
    exponent, factor = scale
    return float(f"{match[1]}e{exponent}") * factor


def quantity(given: float | str, unit: str, place: str) -> float:
    """The number of a unit in a file: rates are positive, sizes and times are not negative.

    Raises InputError, naming the place, for anything else.
    """
    with located(place):
        value = math.inf if given == INFINITE else parse(given, unit)
    if not (value > 0 if is_rate(unit) else value >= 0):
        raise InputError(f"{place}: expected a number of {unit} {'> 0' if is_rate(unit) else '>= 0'}, got {given}")
    return value


def is_rate(unit: str) -> bool:
    """Whether a unit is one of rates."""
    return unit in ("bytes/s", "FLOP/s")


def binary_unit(count: float) -> tuple[float, str]:
    """The largest of GiB, MiB and KiB that is no larger than a number of bytes, and its name; else 1 and "bytes"."""
    units = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))
    return next((each for each in units if count >= each[0]), (1.0, "bytes"))


def lacks_unit(given: float | str, unit: str) -> bool:
    """Whether a plain number is one that no device or link has ever had, so that its unit was forgotten: 24 bytes."""
    if isinstance(given, str):
        return False
    return given >= 1 if unit == "seconds" else 0 < given < (2.0**20 if unit == "bytes" else SLOWEST)


def written(value: float, unit: str) -> float | str:
    """The shortest text with a unit that `parse` reads as exactly this value, or else the value itself.

    A value that would look like one without its unit always gets it.
    """
    if value == 0:
        return 0.0
    exact = []
    for symbol, (power, factor) in _SYMBOLS[unit].items():
        number = value / (10.0**power * factor)
        text = f"{number:.12g}{symbol}"
        is_usual = factor == 1 or unit == "bytes"  # bandwidths are written in decimal bytes
        if is_usual and 0.001 <= number < 1e6 and parse(text, unit) == value:
            exact.append(text)
    if not exact and lacks_unit(value, unit):
        exact = [f"{np.format_float_positional(value, trim='-')}{next(iter(_SYMBOLS[unit]))}"]
    return min(exact, key=len, default=value)


def readable_seconds(value: float) -> str:
    """Three digits, in the unit that suits: "12.3 ms". What never ends takes "inf s"."""
    if value == 0 or value == math.inf:
        return f"{value:.0f} s"
    unit, size = next((each for each in _READABLE if value >= each[1]), _READABLE[-1])
    value /= size
    return f"{value:.{max(0, 2 - int(math.log10(max(value, 1))))}f} {unit}"
