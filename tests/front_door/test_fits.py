"""`placelab fits`, as a user meets it."""

import json

import pytest

from evaluation.commands import command_line
from placelab.verbs import VERBS

GRAPH = "transformer:layers=2,width=32,heads=2,sequence=8,batch=8,vocabulary=64"


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        command_line.run(VERBS, "about", ["fits", *words])
    captured = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, captured.out, captured.err


def test_every_kind_of_plan_is_shown_and_the_exit_code_says_whether_one_fits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = call(capsys, GRAPH, "--cluster", "rtx3090_rtx3060", "--json")
    plans = {plan["kind"]: plan for plan in json.loads(out)["plans"]}
    assert code == 0
    assert plans.keys() == {
        "single device", "human expert", "data parallel", "data parallel, equal shares", "data parallel, accumulated",
        "FSDP", "tensor parallel", "sequence parallel", "GPipe", "GPipe, recomputed", "1F1B", "1F1B, recomputed",
    }  # fmt: skip
    assert all(plan["fits"] for plan in plans.values())
    held = {kind: sum(device["activations"] for device in plan["devices"]) for kind, plan in plans.items()}
    assert held["GPipe, recomputed"] < held["GPipe"]
    weights = {kind: sum(device["weights"] for device in plan["devices"]) for kind, plan in plans.items()}
    assert weights["data parallel"] == 2 * weights["single device"]
    assert len({device["limit"] for device in plans["GPipe"]["devices"]}) == 2


def test_where_nothing_fits_it_ends_with_3_and_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    small = tmp_path_factory.mktemp("small") / "small.cluster.toml"
    small.write_text("""
        [[servers]]
        devices = ["smallx2"]
        link = "pcie3x4"
        [catalogue.devices.small]
        kind = "gpu"
        flops_per_second = "1TFLOP/s"
        bytes_per_second = "10GB/s"
        memory = "10KiB"
    """)
    code, out, err = call(capsys, GRAPH, "--cluster", str(small))
    assert code == 3
    assert out.count("too little on gpu:") == 11
    assert "none of these plans fits" in err
    assert "least is lacking with" in err


def test_micro_batches_and_further_placers(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(
        capsys, GRAPH, "--cluster", "p100x2", "--micro-batches", "4", "--placers", "heft,metis", "--json"
    )
    plans = {plan["kind"]: plan for plan in json.loads(out)["plans"]}
    assert code == 0
    assert plans["1F1B"]["micro_batches"] == 4
    assert plans["single device"]["micro_batches"] == 1
    assert {"heft", "metis"} <= plans.keys()


def test_what_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, GRAPH, "--cluster", "rtx3090_rtx306")[0] == 2
    code, _, err = call(capsys, GRAPH, "--placers", "hetf")
    assert code == 2
    assert "did you mean 'heft'" in err
