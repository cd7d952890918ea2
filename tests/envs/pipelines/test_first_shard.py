"""What the first shard of a divided stage makes."""

from types import SimpleNamespace
from typing import Any

from envs.pipelines.grain.first_shard import _made
from graphs.notation.ranges import Range, whole


def test_the_share_of_the_first_shard_is_of_all_results_and_all_where_nothing_is_known() -> None:
    """Three rows in two parts: the first has two of them; of another result both make all."""
    first, second = (Range(0, 1), Range(0, 3)), (Range(2, 2), Range(0, 3))
    both = whole((4,))
    uneven = SimpleNamespace(whole=[whole((3, 4)), both], made=[[first, second], [both, both]])
    unknown = SimpleNamespace(whole=[], made=[])
    partition: Any = SimpleNamespace(shards=[uneven, unknown])
    assert _made(partition).tolist() == [(2 * 4 + 4) / (3 * 4 + 4), 1.0]
