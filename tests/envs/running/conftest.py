"""What these tests share."""

from tests.envs.placed_models.conftest import one_thread

__all__ = ["one_thread"]
