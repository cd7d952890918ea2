"""The search over pipelines learns by how much its formula errs for changes of a kind."""

import numpy as np
import pytest

from placers.pipelines.local_search import MOST, SPREAD, WEIGHT, _Errors


def test_what_is_expected_has_the_mean_and_the_spread_of_what_was_seen() -> None:
    """Before anything is seen, it is as if as many neighbours as `WEIGHT` had been, half of them off either way."""
    errors, seen = _Errors(), [SPREAD, -SPREAD] * int(WEIGHT / 2)
    for error in (0.1, -0.02, 0.04):
        assert errors.drawn(0.0) == pytest.approx(np.mean(seen))
        assert errors.drawn(-2.0) == pytest.approx(np.mean(seen) - 2 * np.std(seen))
        errors.add(error)
        seen.append(error)
    errors.add(10 * MOST)
    assert errors.drawn(1.0) == pytest.approx(np.mean([*seen, MOST]) + np.std([*seen, MOST]))
