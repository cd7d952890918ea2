"""Curves through what trainings of some lengths come to: a power law that levels off, or a line over the logarithm.

    power law     y = floor + gap (x / x0) ** -exponent     floor, gap >= 0 (Hestness et al. 2017; Kaplan et al. 2020)
    logarithm     y = start - slope ln(x / x0)

y are logarithms of step times over the best known: 0 is perfect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphs.op_graph import Floats

EXPONENTS = np.geomspace(0.05, 2.0, 100)  # of a power law, all of which are tried

Parameters = dict[str, Floats]  # (curves,) each


@dataclass(frozen=True)
class Form:
    """A kind of curve."""

    name: str
    parameters: int
    fitted: Callable[[Floats, Floats], Parameters]  # (points,) x over the first, (curves, points) y
    at: Callable[[Parameters, Floats], Floats]  # parameters, (points,) x over the first -> (curves, points)

    def squares(self, x: Floats, y: Floats) -> float:
        """What is left of one curve, of (points,) x and y: the sum of squares."""
        return float(((self.at(self.fitted(x, y[None]), x) - y) ** 2).sum())


def likelier(x: Floats, y: Floats, forms: tuple[Form, ...]) -> Form:
    """The form with the least Akaike criterion, corrected for few points (Hurvich and Tsai 1989), of (points,) x, y."""

    def criterion(form: Form) -> float:
        free, points = form.parameters + 1, len(x)  # the variance is one of the parameters
        left = points - free - 1
        correction = 2 * free * (free + 1) / left if left > 0 else np.inf
        return float(points * np.log(max(form.squares(x, y), 1e-300) / points) + 2 * free + correction)

    return min(forms, key=criterion)


def _power_law(x: Floats, y: Floats) -> Parameters:
    """Least squares: for each exponent the best floor and gap, and of all exponents the best."""
    best: Parameters = {name: np.zeros(len(y)) for name in ("floor", "gap", "exponent")}
    least = np.full(len(y), np.inf)
    for exponent in EXPONENTS:
        basis = x**-exponent
        centred = basis - basis.mean()
        gap = (y @ centred) / max(float(centred @ centred), 1e-300)
        gap = np.maximum(gap, 0.0)
        floor = y.mean(axis=1) - gap * basis.mean()
        gap = np.where(floor < 0, np.maximum(y @ basis, 0.0) / (basis @ basis), gap)
        floor = np.maximum(floor, 0.0)
        squares = ((floor[:, None] + gap[:, None] * basis - y) ** 2).sum(axis=1)
        better, least = squares < least, np.minimum(squares, least)
        for name, value in (("floor", floor), ("gap", gap), ("exponent", exponent)):
            best[name] = np.where(better, value, best[name])
    return best


def _power_law_at(of: Parameters, x: Floats) -> Floats:
    return np.asarray(of["floor"][:, None] + of["gap"][:, None] * x[None] ** -of["exponent"][:, None])


def _line(x: Floats, y: Floats) -> Parameters:
    centred = np.log(x) - np.log(x).mean()
    slope = -(y @ centred) / max(float(centred @ centred), 1e-300)
    return {"start": y.mean(axis=1) + slope * np.log(x).mean(), "slope": slope}


def _line_at(of: Parameters, x: Floats) -> Floats:
    return np.asarray(of["start"][:, None] - of["slope"][:, None] * np.log(x)[None])


POWER_LAW = Form("power law", 3, _power_law, _power_law_at)
LOGARITHM = Form("logarithm", 2, _line, _line_at)
FORMS = (POWER_LAW, LOGARITHM)
