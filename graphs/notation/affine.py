"""Affine: an integer expression of index variables, such as 2 h + kh - 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphs.notation.ranges import Range


@dataclass(frozen=True)
class Affine:
    """A sum of coefficients times variables, and a constant; written with +, - and * of `variable`s and integers."""

    terms: tuple[tuple[str, int], ...] = ()  # variable, its coefficient, which is not 0; sorted, each once
    constant: int = 0

    @classmethod
    def of(cls, coefficients: Mapping[str, int], constant: int = 0) -> Affine:
        """The expression with these coefficients; those that are 0 are left out."""
        return cls(tuple(sorted((name, factor) for name, factor in coefficients.items() if factor)), constant)

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that it depends on."""
        return tuple(name for name, _ in self.terms)

    def coefficient(self, variable: str) -> int:
        """What a variable is multiplied by; 0 if it does not occur."""
        return dict(self.terms).get(variable, 0)

    def range(self, box: Mapping[str, Range]) -> Range:
        """The smallest closed range of all its values, for variables in these ranges.

        Lower and upper limits are added up apart (interval arithmetic): every variable occurs once, so both are
        reached. Empty if one of its variables has no value.
        """
        low = high = self.constant
        for name, factor in self.terms:
            values = box[name]
            if values.size == 0:
                return Range(self.constant, self.constant - 1)
            ends = (factor * values.low, factor * values.high)
            low, high = low + min(ends), high + max(ends)
        return Range(low, high)

    def at(self, values: Mapping[str, int]) -> int:
        """Its value."""
        return self.constant + sum(factor * values[name] for name, factor in self.terms)

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.terms, self.constant + other)
        total = dict(self.terms)
        for name, factor in other.terms:
            total[name] = total.get(name, 0) + factor
        return Affine.of(total, self.constant + other.constant)

    def __sub__(self, other: Affine | int) -> Affine:
        return self + other * -1

    def __mul__(self, factor: int) -> Affine:
        return Affine.of({name: own * factor for name, own in self.terms}, self.constant * factor)

    __rmul__ = __mul__

    def __str__(self) -> str:
        words = [name if factor == 1 else f"{factor} {name}" for name, factor in self.terms]
        if self.constant or not words:
            words.append(str(self.constant))
        return " + ".join(words).replace("+ -", "- ")


def variable(name: str) -> Affine:
    """The expression that is a variable."""
    return Affine(((name, 1),))
