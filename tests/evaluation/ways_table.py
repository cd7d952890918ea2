"""The table of docs/running.md of which plans run where; `python -m tests.evaluation.ways_table` writes it."""

import re
from dataclasses import replace
from pathlib import Path

import torch

import placelab
from envs.plans.plan import Plan
from envs.running.plan_rules import is_run
from evaluation.exports.formats import FORMATS, export_plan
from graphs.files.load import load_cluster
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import IDEAL
from placers.parallel import Parallel
from tests.evaluation.row_model import Row

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "running.md"
TABLE = re.compile(r"(?<=<!-- ways -->\n)(?:\|.*\n)+")
PIPELINE = Parallel(dp=1, pp=2, stages="2+3", micro_batches=4)
KINDS: dict[str, Parallel] = {
    "one device per op": Parallel(dp=1, pp=2, stages="2+3"),  # without its stages
    "micro-batches on one device": Parallel(dp=1, micro_batches=2),
    "replicas": Parallel(dp=2),
    "replicas with unequal shares": Parallel(dp=2, shares="3:1"),
    "`zero=1`": Parallel(dp=2, zero=1),
    "`zero=2`": Parallel(dp=2, zero=2),
    "`zero=3`": Parallel(dp=2, zero=3),
    "`shard_group`": Parallel(dp=4, zero=3, shard_group=2),
    "`zero=1`, `offload`": Parallel(dp=2, zero=1, offload=True),
    "`zero=3`, `offload`": Parallel(dp=2, zero=3, offload=True),
    "`tp`": Parallel(dp=1, tp=2),
    "`tp` and `sequence`": Parallel(dp=1, tp=2, sequence=True),
    "`tp`, replicas with unequal shares": Parallel(dp=2, tp=2, shares="3:1"),
    "`cp`": Parallel(dp=1, cp=2),
    "stages, 1F1B": PIPELINE,
    "stages, `gpipe`": replace(PIPELINE, order="gpipe"),
    "stages, `zb_h2`": replace(PIPELINE, order="zb_h2"),
    "stages, `interleaved`": replace(PIPELINE, stages="1+1+1+2", interleaved=2),
    "stages, `zb_v`": replace(PIPELINE, stages="1+1+1+2", interleaved=2, order="zb_v"),
    "stages of replicas": replace(PIPELINE, dp=2),
    "stages of replicas, `zero=1`": replace(PIPELINE, dp=2, zero=1),
    "stages of replicas, `zero=3`": replace(PIPELINE, dp=2, zero=3),
    "stages of shards": replace(PIPELINE, tp=2),
    "layers recomputed, `block`": replace(PIPELINE, recompute=True),
    "stages recomputed, `late`": replace(PIPELINE, recompute=True, recompute_at="late"),
}
YES, CHANGED, NO = "yes", "in its way", "-"


def table() -> str:
    """A line for each kind of plan, a column for each way to run it."""
    model, words = Row(), torch.zeros(8, 6, dtype=torch.long)
    problem = placelab.place((model, (words,)), cluster="p100x4", placer="single_device", groups=None).problem
    lines = ["| plan | `parallelize` | `run` | " + " | ".join(f"`{to}`" for to in FORMATS) + " |"]
    lines.append("|---" * (3 + len(FORMATS)) + "|")
    cpu = replace(problem, cluster=load_cluster("cpu_gpu:gpus=4"), runtime=IDEAL, op_seconds=None)
    for kind, asked in KINDS.items():
        on = cpu if asked.offload else problem
        plan = asked.place(on).plan
        plan = Plan(plan.devices, plan.order) if kind == "one device per op" else plan
        cells = [
            YES if plan.is_placement else NO,
            YES if is_run(on, plan) else NO,
            *(_exported(on, plan, model, to) for to in FORMATS),
        ]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _exported(problem: Problem, plan: Plan, model: Row, to: str) -> str:
    """In its way where the step that is simulated is another one."""
    try:
        written = export_plan(problem, plan, model, to)
    except InputError:
        return NO
    return YES if written.plan == plan else CHANGED


if __name__ == "__main__":
    DOCUMENT.write_text(TABLE.sub(lambda _: table(), DOCUMENT.read_text(), count=1))
