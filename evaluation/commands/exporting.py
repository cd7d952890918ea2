"""The verb that writes a plan as other programs take it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.commands.graph_verbs import simulate
from evaluation.commands.switches import CACHE, CODE, switched
from evaluation.commands.verb_signatures import checked
from graphs.foundation.errors import InputError
from graphs.foundation.files import check_writable, write_whole

# Imported late, in the verb, as those of graph_verbs.
if TYPE_CHECKING:
    from typing import Unpack

    from evaluation.commands.arguments import (
        ClusterLike,
        ExportFormat,
        GraphLike,
        PathLike,
        PlanLike,
        ProblemOptions,
    )
    from evaluation.exports.exported_plan import ExportedPlan


@switched(CACHE, CODE)
@checked
def export(
    model: GraphLike,
    plan: PlanLike,
    *,
    to: ExportFormat,
    cluster: ClusterLike = "",
    out: PathLike | None = None,
    **options: Unpack[ProblemOptions],
) -> ExportedPlan:
    """Write a plan as other programs take it, rounded to what these can say, and say what rounding costs.

    Args:
        model: the model that the plan is for, `file.py:callable` or a family spec, or a graph file that `capture`
            wrote, which names the modules that compute something.
        plan: a plan file, as `place --out` writes it.
        to: `device_map`, for accelerate and transformers; `vllm`, its VLLM_PP_LAYER_PARTITION; `llama_cpp`, its
            --n-gpu-layers, --tensor-split and -ot. Programs for training are told degrees of parallelism, stages, batch
            and recomputation: `torchtitan`, in lines of Python; `megatron`, in flags; `deepspeed`, in its JSON. `fsdp`
            is which modules PyTorch's fully_shard wraps; `schedule_csv`, the order of a pipeline's passes, for
            torch.distributed.pipelining and torchtitan; `chakra`, execution traces of the simulated step, for
            simulators of networks.
        cluster: a cluster file or a preset, as `place` takes it.
        out: the file to write; without it the text is only shown. Of `chakra` what the names of its files begin with,
            which end in .0.et, .1.et, and so on: one for each device.
        groups: the number of op groups that the plan was made for, as `simulate` takes it.
        optimizer: whose state occupies memory, as `place` takes it.
        precision: that of training, as `place` takes it.
        batch: samples of a step, as `place` takes it.
        training: the plan is for a training step; without it, for a forward pass.
        cost_model: what ops cost, as `place` takes it.
        runtime: how plans are run, as `place` takes it.
        order: the rule to simulate under, in place of the plan's own order.
        host: what it costs to issue ops, as `place` takes it.
        reserve: memory that tensors cannot have, as `place` takes it.

    """
    several = to == "chakra"
    if several and out is None:
        raise InputError("chakra traces are several files; say with `out` what their names begin with")
    check_writable(f"{out}.0.et" if several else out, inputs=[model, plan, cluster])
    planned = simulate(model, plan, cluster=cluster, **options)
    from evaluation.exports.exported_plan import ExportedPlan
    from graphs.files.graph_source import graph_source
    from graphs.formats.graph_files import is_graph_file

    is_file = isinstance(model, str | Path) and is_graph_file(str(model))  # which has been read already
    found = ExportedPlan.of(planned, graph_source(planned.problem.graph if is_file else model), to)
    for ending, content in found.files.items() if out is not None else ():
        write_whole(Path(f"{out}{ending}"), content)
    return found
