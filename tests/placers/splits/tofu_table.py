"""Tofu's costs (Wang et al. 2019), slowly, in plain Python: its table for one cut in two, and its recursion."""

from collections.abc import Sequence
from fractions import Fraction
from math import prod

Region = tuple[tuple[Fraction, Fraction], ...]  # per dimension from where to where
PARTIAL, WHOLE = "partial", "whole"
Scheme = str | int  # one of these, or the dimension that is cut


def volume(region: Region) -> Fraction:
    return prod((max(high - low, Fraction(0)) for low, high in region), start=Fraction(1))


def common(first: Region, second: Region) -> Region:
    return tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(first, second, strict=True))


def halves(region: Region, scheme: Scheme) -> tuple[Region, Region]:
    if not isinstance(scheme, int):
        return region, region
    low, high = region[scheme]
    middle = (low + high) / 2
    first, second = list(region), list(region)
    first[scheme], second[scheme] = (low, middle), (middle, high)
    return tuple(first), tuple(second)


def table(r1: Region, s1: Scheme, r2: Region, s2: Scheme) -> Fraction:
    """The cost of one cut, of a tensor that is held in r1 by s1, and needed in r2 by s2."""
    if s1 == PARTIAL:  # Tofu has 2 |r1| for whole, which is the same where both regions are
        return volume(r1) + (volume(r2) if s2 == WHOLE else 0)
    missing = volume(r2) - volume(common(r1, r2))
    if s1 == WHOLE:
        return missing if s2 == WHOLE else Fraction(0)
    (a1, a2), (b1, b2) = halves(r1, s1), halves(r2, s2)
    if s2 == WHOLE:
        return volume(common(a1, r2)) + volume(common(a2, r2)) + missing
    return volume(common(a1, b2)) + volume(common(a2, b1))


def recursion(shape: Sequence[int], made: Sequence[Scheme], needed: Sequence[Scheme]) -> list[Fraction]:
    """What each cut adds to c1 + 2 (c2 + 2 (c3 + ...)); regions shrink by each cut, if they are cut.

    Tofu takes all parts to be alike; here the costs of each are added up.
    """
    whole = tuple((Fraction(0), Fraction(size)) for size in shape)
    groups, costs = [(whole, whole)], []
    for s1, s2 in zip(made, needed, strict=True):
        costs.append(sum((table(r1, s1, r2, s2) for r1, r2 in groups), start=Fraction(0)))
        groups = [both for r1, r2 in groups for both in zip(halves(r1, s1), halves(r2, s2), strict=True)]
    return costs
