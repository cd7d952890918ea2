"""What these tests share."""

from collections.abc import Iterator

import pytest
import torch
import torch._export.utils


@pytest.fixture(scope="session", autouse=True)
def operations_are_looked_up_once() -> Iterator[None]:
    """The exporter looks up all operations 50 times per export, a quarter of its time; here, when there are others."""
    look_up, known = torch._export.utils._materialize_cpp_cia_ops, list[str]()

    def if_changed() -> None:
        registered = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
        if registered != known:
            look_up()
            known[:] = registered

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch._export.utils, "_materialize_cpp_cia_ops", if_changed)
        yield
