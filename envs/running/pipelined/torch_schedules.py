"""PyTorch's runtime of pipelines, for a plan's rows of passes: its own schedule, where it has that one.

Orders that PyTorch has no class for are given to its runtime row by row, which is no public interface yet.
"""

from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage, schedules

from envs.running.pipelined.schedule_rows import ScheduleRows
from graphs.foundation.errors import InputError

ONE_STAGE_EACH = {"gpipe": "GPipe", "early_backward_a": "1F1B"}
"""PyTorch's schedules of one stage on each rank, by the order of passes that is theirs."""
SEVERAL = {
    "interleaved": "Interleaved1F1B",
    "looped_bfs": "LoopedBFS",
    "interleaved_zero_bubble": "InterleavedZeroBubble",
    "zb_v": "ZBVZeroBubble",
    "dualpipe_v": "DualPipeV",
}
"""And those of several."""
TAKES_ROWS = (2, 13)  # the first version of PyTorch whose runtime was given rows in our tests
_PRIVATE = "_PipelineScheduleRuntime", "_Action"


def schedule_of(
    order: str, rows: ScheduleRows, micro_batches: int, stages: list[PipelineStage], group_rank: tuple[int, ...]
) -> Any:
    """What runs a plan's passes on a rank, whose stages these are; `group_rank`, (ranks,), are numbers in its group.

    Raises InputError where only rows would do and this version of PyTorch is not known to take them.
    """
    as_given = group_rank == tuple(range(len(group_rank)))
    options: dict[str, Any] = {"loss_fn": _loss, "scale_grads": False}
    if as_given and order in SEVERAL:
        return schedules.get_schedule_class(SEVERAL[order])(stages, micro_batches, **options)
    alone = all(len(hosted) == 1 for hosted in rows.ranks)
    if as_given and alone and order in ONE_STAGE_EACH and micro_batches >= len(rows.ranks):
        return schedules.get_schedule_class(ONE_STAGE_EACH[order])(stages[0], micro_batches, **options)
    _check_version(order)
    runtime: Any = schedules._PipelineScheduleRuntime(stages, micro_batches, **options)  # type: ignore[no-untyped-call]
    actions = {
        group_rank[rank]: list(map(schedules._Action.from_str, row)) for rank, row in enumerate(rows.rows())
    }  # fmt: skip
    runtime._prepare_schedule_with_comms(actions)
    return runtime


def _loss(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """The last stage returns its loss."""
    return output


def _check_version(order: str) -> None:
    version = tuple(int(number) for number in torch.__version__.split(".")[:2])
    if version < TAKES_ROWS or not all(hasattr(schedules, name) for name in _PRIVATE):
        raise InputError(
            f"PyTorch {torch.__version__} is not known to run the passes of order {order!r}; use one of "
            f"{', '.join([*ONE_STAGE_EACH, *SEVERAL])} on devices in the order of their stages, or PyTorch "
            f"{'.'.join(map(str, TAKES_ROWS))}"
        )
