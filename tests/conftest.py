"""What tests of all floors share."""

import pytest

from tests.oracle.toys import Toy
from tests.oracle.toys import four_ops_two_devices as _four_ops_two_devices


@pytest.fixture
def four_ops_two_devices() -> Toy:
    """A toy problem with a known optimum: `problem`, `best_placement` (units,), `best_seconds`."""
    return _four_ops_two_devices()
