"""Quantities with units, as people write them: "16GiB", "732GB/s", "9.3TFLOP/s", "10us"."""

from __future__ import annotations

import re

from graphs.foundation.errors import InputError

# Prefixes and units of time: powers of ten, or factors.
_DECIMAL = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_SECONDS = {"s": 0, "ms": -3, "us": -6, "µs": -6, "ns": -9}
_EXAMPLES = {"bytes": "16GiB", "bytes/s": "732GB/s", "FLOP/s": "9.3TFLOP/s", "seconds": "10us"}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-zµ/]+)")


def parse(given: float | str, unit: str) -> float:
    """A number of `unit` ("bytes", "bytes/s", "FLOP/s" or "seconds"), from a plain number or text with a unit.

    Decimal prefixes are k, M, G, T, P, binary ones Ki, Mi, Gi, Ti; bandwidths may be in bits, "25Gbit/s".
    Raises InputError for anything else.
    """
    if not isinstance(given, str):
        return float(given)
    match = _NUMBER.fullmatch(given.strip())
    scale = _scale(match[2], unit) if match else None
    if match is None or scale is None:
        example = _EXAMPLES[unit]
        raise InputError(f"expected a number of {unit} without quotes, or text such as {example!r}, got {given!r}")
    exponent, factor = scale
    return float(f"{match[1]}e{exponent}") * factor


def written(value: float, unit: str) -> float | str:
    """The shortest text with a unit that `parse` reads as exactly this value, or else the value itself."""
    if value == 0:
        return 0.0
    texts = [f"{number}{symbol}" for symbol, number in _candidates(value, unit)]
    exact = [text for text in texts if parse(text, unit) == value]
    return min(exact, key=len, default=value)


def _scale(symbol: str, unit: str) -> tuple[int, float] | None:
    """Power of ten and factor of a unit symbol, or None if it is not one of this quantity."""
    if unit == "seconds":
        return (_SECONDS[symbol], 1.0) if symbol in _SECONDS else None
    for ending, factor in _endings(unit).items():
        prefix = symbol.removesuffix(ending)
        if symbol.endswith(ending) and prefix in _DECIMAL:
            return _DECIMAL[prefix], factor
        if symbol.endswith(ending) and prefix in _BINARY and unit != "FLOP/s":
            return 0, factor * _BINARY[prefix]
    return None


def _endings(unit: str) -> dict[str, float]:
    return {
        "bytes": {"B": 1.0},
        "bytes/s": {"B/s": 1.0, "bit/s": 0.125, "bps": 0.125},
        "FLOP/s": {"FLOP/s": 1.0},
    }[unit]


def _candidates(value: float, unit: str) -> list[tuple[str, str]]:
    """Unit symbols, and the value's number in each, plainly written."""
    if unit == "seconds":
        scales = {symbol: 10.0**power for symbol, power in _SECONDS.items() if symbol != "µs"}
    else:
        ending = next(iter(_endings(unit)))
        scales = {f"{prefix}{ending}": 10.0**power for prefix, power in _DECIMAL.items()}
        if unit == "bytes":
            scales |= {f"{prefix}{ending}": factor for prefix, factor in _BINARY.items()}
    return [(symbol, f"{value / scale:.12g}") for symbol, scale in scales.items() if _is_plain(value / scale)]


def _is_plain(number: float) -> bool:
    return 0.001 <= number < 1e6
