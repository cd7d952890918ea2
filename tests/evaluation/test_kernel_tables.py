"""Kernel tables: their FLOP and bytes, what is fitted to them, and that the bundled file is made from them."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from envs.costs.efficiency_file import BUNDLED, load_efficiencies
from evaluation.studies.measured.efficiencies import efficiencies, fitted, text
from evaluation.studies.measured.kernel_tables import Kernel, model_kernels, single_kernels
from graphs.devices.catalogue import device

MEASURED = Path(os.environ.get("PLACELAB_MEASURED", "measured"))
V100 = "Tesla V100-PCIE-32GB"


def test_single_kernels_have_the_flops_and_bytes_of_a_graph(tmp_path: Path) -> None:
    rows = ["bmm,2x3x5x7,1.5", "linear,1x3x5x7,1", "conv,2x3x4x3x8x1x1,1", "ln,6x7,1", "addu,6x7,1", "add,6x7,1"]
    (tmp_path / "ops.csv").write_text("\n".join(["gpu,op,shape,ms", *(f"{V100},{row}" for row in rows)]))
    found = [(each.kind, each.flops, each.bytes) for each in single_kernels(tmp_path)]
    assert found == [
        ("batched-product", 2 * 2 * 3 * 5 * 7, 4 * 2 * (3 * 7 + 7 * 5 + 3 * 5)),
        ("product", 2 * 3 * 5 * 7, 4 * (3 * 7 + 7 * 5 + 3 * 5)),
        ("winograd", 2 * 2 * 4 * 8 * 8 * 3 * 9, 4 * (2 * 3 * 64 + 4 * 3 * 9 + 2 * 4 * 64)),
        ("normalisation", 0, 2 * 4 * 42),
        ("other", 0, 2 * 4 * 42),
        ("other", 0, 3 * 4 * 42),
    ]
    assert next(single_kernels(tmp_path)).seconds == 1.5e-3


def test_ops_of_models_have_a_backward_pass_and_what_does_nothing_is_left_out(tmp_path: Path) -> None:
    rows = [
        'm-train-8-1,matmul,"[[1,2,8,4],[1,2,4,8]]","(1,2,8,8)",1,2',
        'm-train-8-1,L.fc1,"[[8,4]]","(8,16)",1,2',
        'm-train-8-1,L.ln_1,"[[8,4]]","(8,4)",1,3',
        'm-inf-8-1,L.drop,"[[8,4]]","(8,4)",1,0',
        'm-train-8-1,add,"[[8,4],[1]]","(8,4)",1,0',
        'm-train-8-1,add,[[1]],"(1,)",1,0',
        'm-train-8-1,view,"[[8,4],[1]]","(8,4)",1,0',
    ]
    heads = "gpu,run,op,inputs,output,forward_ms,backward_ms"
    (tmp_path / "model_ops.csv").write_text("\n".join([heads, *(f"Tesla_V100-PCIE-32GB,{row}" for row in rows)]))
    found = [(each.kind, each.flops, each.bytes, each.seconds) for each in model_kernels(tmp_path)]
    assert found == [
        ("batched-product", 2 * 2 * 8 * 4 * 8, 4 * 2 * (8 * 4 + 4 * 8 + 8 * 8), 1e-3),
        ("product", 2 * 8 * 4 * 16, 4 * (8 * 4 + 4 * 16 + 8 * 16), 1e-3),
        ("normalisation", 0, 2 * 4 * 32, 1e-3),
        ("normalisation-backward", 0, 2 * 4 * 32, 1.5e-3),  # of the input, and of the weights
        ("other", 0, 2 * 4 * 32, 1e-3),
    ]


@pytest.mark.parametrize("half", [0.0, 4e-4])
def test_the_numbers_are_found_again_that_made_the_times(half: float) -> None:
    sheet, kernels = device("v100-pcie"), list[Kernel]()
    for flops, moved in zip(np.geomspace(1e8, 1e11, 12), np.geomspace(1e9, 1e5, 12), strict=True):
        ideal = max(flops / sheet.flops_per_second / 0.6, moved / sheet.bytes_per_second / 0.8)
        took = ideal + np.sqrt(half * ideal)
        for of_model, waited in ((False, 5e-5), (True, 1e-5)):
            each = Kernel(
                gpu="v100-pcie", kind="product", flops=flops, bytes=moved, seconds=took + waited, of_model=of_model
            )
            kernels.append(each)
    found = fitted(kernels)
    assert (found.arithmetic, found.traffic) == pytest.approx((0.6, 0.8), abs=0.011)
    assert found.half == pytest.approx(half, rel=0.1)


def test_the_text_of_efficiencies_says_what_they_are(tmp_path: Path) -> None:
    measured, written = load_efficiencies("measured"), tmp_path / "again.toml"
    written.write_text(text(measured))
    assert load_efficiencies(str(written)) == measured


@pytest.mark.slow
def test_products_that_all_compute_longer_than_they_move_say_nothing_of_the_bandwidth() -> None:
    sheet = device("v100-pcie")
    kernels = [
        Kernel(gpu="v100-pcie", kind="product", flops=flops, bytes=flops / 100, seconds=took, of_model=False)
        for flops in np.geomspace(1e9, 1e11, 12)
        for took in [flops / sheet.flops_per_second / 0.6]
    ]
    assert fitted(kernels, other=0.8).traffic == 0.8
    moved = [replace(each, bytes=each.seconds * sheet.bytes_per_second * 0.5) for each in kernels]
    assert fitted([*kernels, *(replace(each, flops=0.0) for each in moved)], other=0.8).traffic == 0.5


@pytest.mark.skipif(not MEASURED.exists(), reason="set PLACELAB_MEASURED to the folder of measured kernels")
def test_the_measured_efficiencies_are_made_from_the_tables() -> None:
    assert text(efficiencies(MEASURED)) == (BUNDLED / "measured.toml").read_text()
