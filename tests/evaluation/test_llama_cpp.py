"""llama.cpp has every layer on the card that the plan gives it, by the arguments that are exported."""

import re
import shlex
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import placelab
from envs.plans.plan import Plan
from evaluation.exports.formats import export_plan
from evaluation.exports.module_keys import ModuleKeys
from graphs.files.load import load_cluster
from tests.drawn import examples
from tests.evaluation.row_model import WORDS, Row, row_on_four


@pytest.mark.parametrize(
    ("cluster", "places", "text", "rounded"),
    [  # words, layers, head, scale, which is called after words; device 0 of cpu_gpu is the CPU
        ("p100x3", (0, 0, 0, 1, 1, 2, 2, 0), "--n-gpu-layers 6 --tensor-split 2,2,2", (0, 0, 0, 1, 1, 2, 2, 0)),
        ("p100x3", (0, 0, 0, 2, 2, 2, 2, 0), "--n-gpu-layers 6 --tensor-split 2,0,4", (0, 0, 0, 2, 2, 2, 2, 0)),
        ("p100x3", (1,) * 8, "--n-gpu-layers 6 --tensor-split 0,6,0", (1,) * 8),
        (
            "p100x3", (1, 1, 1, 0, 0, 0, 0, 1), "--n-gpu-layers 6 --device CUDA1,CUDA0 --tensor-split 2,4",
            (1, 1, 1, 0, 0, 0, 0, 1),
        ),
        (
            "p100x3", (2, 2, 0, 2, 0, 0, 0, 0),
            r"--n-gpu-layers 6 --device CUDA2,CUDA0 --tensor-split 2,4 -ot 'blk\.(1)\.=CUDA0,blk\.(2)\.=CUDA2'",
            (2, 2, 0, 2, 0, 0, 0, 2),
        ),
        (
            "cpu_gpu:gpus=2", (0, 0, 0, 2, 2, 2, 0, 0),
            r"--n-gpu-layers 4 --tensor-split 0,4 -ot '^output\.weight=CPU'", (0, 0, 0, 2, 2, 2, 0, 0),
        ),
        ("cpu_gpu:gpus=2", (0, 0, 0, 0, 0, 0, 2, 0), "--n-gpu-layers 1 --tensor-split 0,1", (0, 0, 0, 0, 0, 0, 2, 0)),
        (
            "cpu_gpu:gpus=2", (1, 1, 0, 1, 2, 0, 2, 0),
            r"--n-gpu-layers 6 --tensor-split 3,3 -ot 'blk\.(1|4)\.=CPU'", (0, 1, 0, 1, 2, 0, 2, 0),
        ),
        ("cpu_gpu:gpus=2", (0,) * 8, "--n-gpu-layers 0", (0,) * 8),
    ],
)  # fmt: skip
def test_llama_cpp_counts_layers_and_names_those_on_the_cpu(
    cluster: str, places: tuple[int, ...], text: str, rounded: tuple[int, ...]
) -> None:
    model = Row()
    problem = placelab.place((model, (WORDS,)), cluster=cluster, placer="single_device", groups=None).problem
    keys = ModuleKeys.of(problem, Plan.of([0] * len(problem.graph)), model)
    written = export_plan(problem, keys.placed(np.array(places)), model, "llama_cpp")
    assert written.text == text
    keyed = keys.modules.of_op >= 0
    assert np.array_equal(written.plan.placement[keyed], np.array(rounded)[keys.modules.of_op[keyed]])


def devices_by_llama_cpp(text: str, layers: int, gpus: int) -> list[str]:
    """Where llama.cpp computes each layer, and the output, given its arguments.

    As load_tensors of src/llama-model.cpp has it: the first layers are the CPU's, the others are dealt out to devices
    by the running sum of shares, in single precision. A pattern of -ot, which is looked for in the names of tensors,
    says where weights are kept, and ggml computes where these are.
    """
    found = shlex.split(text)
    given = {key: value for key, value in pairwise(found) if key.startswith("-")}
    offloaded = int(given["--n-gpu-layers"])
    devices = given["--device"].split(",") if "--device" in given else [f"CUDA{number}" for number in range(gpus)]
    shares = np.zeros(len(devices), np.float32)
    values = given.get("--tensor-split", "1").split(",")
    shares[: len(values)] = np.array(values, np.float32)
    ends = np.cumsum(shares, dtype=np.float32) / shares.sum()
    first, count = max(layers + 1 - offloaded, 0), min(offloaded, layers + 1)
    placed = []
    for slot in range(layers + 1):
        device = "CPU"
        if first <= slot < first + count:
            device = devices[int(np.searchsorted(ends, np.float32(slot - first) / np.float32(count), side="right"))]
        tensor = "output.weight" if slot == layers else f"blk.{slot}.attn_output.weight"
        for entry in filter(None, given.get("-ot", "").split(",")):
            pattern, _, place = entry.rpartition("=")
            device = place if re.search(pattern, tensor) else device
        placed.append(device)
    return placed


@given(
    cluster=st.sampled_from(["p100x3", "p100x4", "cpu_gpu:gpus=2", "cpu_gpu:gpus=3"]),
    places=st.lists(st.integers(0, 3), min_size=8, max_size=8), is_sorted=st.booleans(),
)  # fmt: skip
@settings(max_examples=examples(60, 9), deadline=None)
def test_llama_cpp_has_every_layer_where_the_plan_has_it(cluster: str, places: list[int], is_sorted: bool) -> None:
    model, problem = Row(), row_on_four()
    problem = replace(problem, cluster=load_cluster(cluster), op_seconds=None)
    names = [device.name for device in problem.cluster.devices]
    places = [place % len(names) for place in places]
    places[1:7] = sorted(places[1:7]) if is_sorted else places[1:7]
    keys = ModuleKeys.of(problem, Plan.of([0] * len(problem.graph)), model)
    written = export_plan(problem, keys.placed(np.array(places)), model, "llama_cpp")
    gpus = [name for name in names if not name.startswith("cpu")]
    wanted = ["CPU" if names[place].startswith("cpu") else f"CUDA{gpus.index(names[place])}" for place in places[1:7]]
    assert devices_by_llama_cpp(written.text, 5, len(gpus)) == wanted
    keyed = keys.modules.of_op
    assert np.array_equal(written.plan.placement[keyed == 6], np.full((keyed == 6).sum(), places[6]))
    moved = {key for key in set(keyed[keyed >= 0].tolist()) if written.plan.placement[keyed == key][0] != places[key]}
    assert moved <= {0, 7}, "the embedding and what is with it may be on the CPU"
    assert written.moved == len(moved)
    assert any("On other devices than planned: words on" in note for note in written.notes) == (0 in moved)
    if "-ot" not in written.text and max(written.plan.placement) < len(gpus) and "cpu" not in cluster:
        assert not any("key-value" in note for note in written.notes)
