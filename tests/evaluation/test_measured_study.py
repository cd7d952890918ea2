"""The study of measured steps: how rows are said, what is concluded from predictions, and a whole one, tiny."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from envs.costs.efficiency_file import load_efficiencies
from evaluation.studies.measured import __main__ as measured
from evaluation.studies.measured.__main__ import Measured
from evaluation.studies.measured.findings import Asked, Compared, VariantFindings, all_reduce_table
from evaluation.studies.measured.models import model_of
from evaluation.studies.measured.predictions import Prediction, Predictions, all_reduce, together
from evaluation.studies.measured.questions import cluster_file, efficiency_file, question, runtime, why_not
from evaluation.studies.measured.rows import FITTED, AllReduce, Row, read
from evaluation.studies.measured.variants import VARIANTS, Variant
from graphs.cluster import GIB
from graphs.devices.catalogue import catalogue, device
from graphs.files.load import load_cluster, load_graph
from graphs.foundation import by_name
from graphs.foundation.errors import InputError

PLAIN = Variant("as by default")
TINY = {
    "id": "tiny-1", "source": "somebody", "use": "score", "kind": "gpt", "model": "tiny", "phase": "step",
    "precision": "fp32", "optimizer": "adam", "layers": 2, "hidden": 16, "heads": 2, "sequence": 8, "vocabulary": 128,
    "tied": "yes", "global_batch": 8, "gpu": "Tesla_P4", "seconds": 1.0,
}  # fmt: skip


def row(**changed: Any) -> Row:
    """A tiny one."""
    return msgspec.convert(TINY | changed, Row)


# ---- how rows are said -----------------------------------------------------------------------------------------------


def test_a_plan_is_said_by_its_degrees_and_blocks_do_not_count_embedding_and_head() -> None:
    given = row(
        layers=24, dp=2, tp=4, pp=4, gpus=32, micro_batches=4, schedule="1f1b", stage_layers="5 7 7 7",
        recompute="full", optimizer="lamb", global_batch=64,
    )  # fmt: skip
    said = question(given)
    assert said.placer == (
        "parallel:dp=2,tp=4,pp=4,micro_batches=4,recompute=true,order=early_backward_a,stages=4+7+7+6"
    )
    assert said.model == "transformer:layers=24,width=16,heads=2,sequence=8,vocabulary=128,tied=true,batch=64"
    assert (said.optimizer, said.precision, said.training) == ("adam", "fp32", True)
    assert question(row(layers=26, pp=2, gpus=2, stage_layers="14 14")).placer.endswith("order=early_backward_a")
    interleaved = row(pp=2, vp=2, gpus=2, micro_batches=4, schedule="interleaved 1f1b")
    assert question(interleaved).placer == "parallel:dp=1,pp=2,micro_batches=4,interleaved=2,order=interleaved"
    assert not question(row(phase="forward")).training


def test_stages_of_torchgpipes_modules_begin_at_ours() -> None:
    given = {"kind": "resnet", "layers": 101, "image": 224, "schedule": "gpipe", "gpu": "Tesla P40"}

    def begins(counts: str) -> list[str]:
        """The stages but the first one, of `benchmarks/resnet101-speed/main.py`."""
        stages = len(counts.split())
        said = question(row(**given, pp=stages, gpus=stages, micro_batches=stages, stage_layers=counts))
        return said.placer.partition("stages=")[2].split("+")

    # 4 modules of the stem, 33 blocks of 11 modules each, and 3 of the head
    assert begins("44 92 124 110") == ["blocks.3.expand", "blocks.12.reduce", "blocks.23/relu_70"]
    assert begins("26 22 33 44 44 66 66 69") == [f"blocks.{block}.reduce" for block in (2, 4, 7, 11, 15, 21, 27)]
    assert begins("135 235") == ["blocks.11/relu_36"]
    assert begins("369 1") == ["classifier"]
    assert begins("13 357") == [""], "a residual has no one name"
    small = load_graph("resnet:layers=26,image=32,batch=2")  # 8 blocks
    relus = [
        begins(f"{4 + 11 * block + place} {91 - 11 * block - place}") for block in range(8) for place in (3, 6, 10)
    ]
    assert {name for (name,) in relus} == {name for name in small.names if re.fullmatch(r"blocks.*/relu_\d+", name)}


def test_a_kernel_of_attention_that_is_named_has_its_own_share_of_the_peak(tmp_path: Path) -> None:
    assert question(row(attention="flash (SDPA)")).attention == 0.0
    share = question(row(attention="flash (triton), learned positions")).attention
    assert 0.25 <= share <= 0.4  # of FlashAttention on A100 (Dao 2024)
    of, measured = load_efficiencies(str(efficiency_file(share, tmp_path))), load_efficiencies("measured")
    kinds = ["aten.scaled_dot_product_attention", "aten.scaled_dot_product_attention.causal", "aten.mm"]
    assert of.of(kinds, "a100-40gb-pcie").arithmetic.tolist() == [share, 2 * share, 0.78]
    on_h100 = of.of(kinds, "h100").arithmetic.tolist()
    assert on_h100 == pytest.approx([0.35 / 0.62 * share, 0.35 / 0.31 * share, 0.79])
    assert of.measured_as() == measured.measured_as()


def test_steps_of_vtrain_on_one_server_run_without_recomputation() -> None:
    few, many = (row(source=FITTED, recompute="full", gpus=gpus, dp=gpus, global_batch=64) for gpus in (8, 16))
    assert "recompute" not in question(few).placer
    assert "recompute=true" in question(many).placer


def test_the_vocabulary_is_padded_by_megatron_but_where_products_are_as_slow_as_unaligned_ones() -> None:
    def words(**changed: Any) -> str:
        return question(row(vocabulary=50257, framework="Megatron-LM", **changed)).model.split("vocabulary=")[1][:5]

    assert words() == "50304"
    assert words(tp=4, gpus=4) == "50688"
    assert words(source=FITTED) == "50257"
    assert question(row(vocabulary=50257)).model.split("vocabulary=")[1][:5] == "50257"


@pytest.mark.parametrize(
    ("framework", "how"),
    [("Megatron-DeepSpeed", "megatron"), ("accelerate + Megatron-LM", "megatron:overlap=true"),
     ("torchgpipe", "torch-pipelining"),
     ("torchtitan torch.compile", "torch-pipelining:host=compiled")],
)  # fmt: skip
def test_rows_are_run_as_their_framework_runs_them(framework: str, how: str) -> None:
    assert runtime(row(framework=framework)) == how


def test_networks_that_are_not_said_are_those_of_the_servers(tmp_path: Path) -> None:
    given = row(gpu="A100-SXM-80GB", gpus=16, gpus_per_node=8, dp=16, global_batch=16, intra_link="NVLink3")
    said = (msgspec.structs.replace(given, inter_link=each) for each in ("RoCE/InfiniBand, not said", ""))
    first, second = (msgspec.json.decode(cluster_file(each, PLAIN, tmp_path).read_bytes()) for each in said)
    links = catalogue().links
    assert first["network"]["cards"] == "device"
    assert first["catalogue"]["links"]["between"] == msgspec.to_builtins(links["infiniband200"])
    assert second["network"]["cards"] == "server"


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, ""),
        ({"use": "aside"}, "the number is doubtful"),
        ({"seconds": 0.0}, "neither time nor memory is said"),
        ({"seconds": 0.0, "peak_bytes": 1e9}, ""),
        ({"precision": "nvfp4"}, "precision: nvfp4"),
        ({"precision": "fp8 (te) + bf16"}, ""),
        ({"zero": "3"}, ""),
        ({"zero": "1", "tp": 2, "dp": 2}, "sharded optimizer or weights next to tensor parallelism"),
        ({"kind": "unet"}, "no such model: unet"),
        ({"kv_heads": 1, "attention": "flash (SDPA)", "ffn": 20}, ""),
        ({"gpu": "Tesla_P4+Abacus"}, "no data sheet: Abacus"),
        ({"micro_batches": 3}, "uneven micro-batches"),
        ({"recompute": "selective"}, "recomputation of a part of a layer"),
    ],
)
def test_what_cannot_be_said_has_a_reason(changed: dict[str, Any], reason: str) -> None:
    assert why_not(row(**changed)) == reason


@pytest.mark.parametrize(
    ("changed", "knobs"),
    [
        ({}, ""),
        ({"ffn": 64, "kv_heads": 2, "dropout": "0", "activation": "gelu"}, ""),
        ({"ffn": 20, "kv_heads": 1}, "inner=20,kv_heads=1"),
        (
            {"attention": "unfused, fused softmax", "dropout": "not said", "activation": "gelu, fused with the bias"},
            "attention=megatron,dropout=0.1",
        ),
        (
            {"attention": "eager", "dropout": "0.1", "activation": "gelu_new", "framework": "PyTorch, transformers"},
            "attention=eager,dropout=0.1,activation=gelu_new",
        ),
        (
            {"attention": "eager", "activation": "gelu_new", "framework": "PyTorch torch.compile, transformers"},
            "attention=megatron",
        ),
        (
            {"model": "OPT-1.3B", "activation": "relu", "framework": "PyTorch eager, transformers"},
            "activation=relu,separate=true",
        ),
        ({"model": "OPT-350M", "framework": "Megatron-DeepSpeed", "attention": "flash (triton)"}, "attention=sdpa"),
        (
            {"model": "OPT-350M", "attention": "unfused", "dropout": "0.1"},
            "attention=eager,dropout=0.1,attention_dropout=false",
        ),
    ],
)
def test_a_model_is_said_with_the_operations_of_its_framework(changed: dict[str, Any], knobs: str) -> None:
    spec = "transformer:layers=2,width=16,heads=2,sequence=8,vocabulary=128,tied=true"
    assert model_of(row(**changed)) == (f"{spec},{knobs}" if knobs else spec)
    by_name.check("graphs.families", model_of(row(**changed)))


def test_stages_that_are_said_in_words_have_equally_many_blocks() -> None:
    given = row(layers=32, pp=4, vp=8, gpus=4, micro_batches=4, stage_layers="8 virtual stages of one layer each")
    assert "layers=" not in question(given).placer
    assert "interleaved=8" in question(given).placer


def test_models_of_other_families_have_the_knobs_that_these_have() -> None:
    llama = {"kind": "llama", "ffn": 40, "kv_heads": 1, "attention": "flash (SDPA)", "activation": "swiglu"}
    sizes = "layers=2,width=16,heads=2,sequence=8"
    assert model_of(row(**llama)) == f"llama:{sizes},inner=40,vocabulary=128,kv_heads=1,attention=sdpa"
    bert = row(
        kind="bert", dropout="0.1", notes="input ids all ones; BertForSequenceClassification: no vocabulary head"
    )
    assert model_of(bert) == f"bert:{sizes},dropout=0.1,separate=true,classes=2"
    for each in (row(**llama), bert):
        by_name.check("graphs.families", model_of(each))


def test_servers_are_those_of_the_stages_in_their_order(tmp_path: Path) -> None:
    unequal = row(
        gpu="RTX-2080+Titan-RTX", gpus=8, dp=2, tp=2, pp=2, stage_devices="Titan-RTX+RTX-2080 | RTX-2080+RTX-2080"
    )
    cluster = load_cluster(cluster_file(unequal, PLAIN, tmp_path))
    assert [each.memory_bytes / 2**30 for each in cluster.devices] == [24, 24, 11, 11, 11, 11, 11, 11]
    assert cluster.latency[0, 1] < cluster.latency[1, 2], "pairs are in servers"
    several = row(gpu="A100-SXM-80GB", gpus=16, gpus_per_node=8, intra_link="NVLink3", inter_link="4 HDR")
    cluster = load_cluster(cluster_file(several, PLAIN, tmp_path))
    assert (len(cluster), cluster.bandwidth[0, 7], cluster.bandwidth[0, 8]) == (16, 300e9, 12.5e9)


@pytest.mark.parametrize(
    ("precision", "word"),
    [
        ("fp32+tf32", "tf32"), ("bf16 amp", "bf16-mixed"), ("fp16 amp (fp32 master; inferred)", "fp16"),
        ("bf16 or fp16 (fp32 master)", "bf16"),
    ],
)  # fmt: skip
def test_precision_is_that_of_tensors_or_of_an_autocast_block(precision: str, word: str) -> None:
    assert question(row(precision=precision)).precision == word


def test_a_variant_changes_numbers_of_devices_and_links(tmp_path: Path) -> None:
    given = row(gpu="GH-96")
    slower = Variant("slow", device={"launch": "1ms"}, link={"latency": "2ms"})
    for variant, launch in ((PLAIN, 5e-6), (slower, 1e-3)):
        [own] = load_cluster(cluster_file(given, variant, tmp_path)).devices
        assert own.flops_per_second == device("gh200").flops_per_second
        assert own.launch_seconds == launch
    pair = load_cluster(cluster_file(row(gpus=2), slower, tmp_path))
    assert pair.latency[0, 1] == 2e-3


def test_half_of_the_groups_of_one_source_may_set_constants_and_always_the_same() -> None:
    groups = [row(source=FITTED, hidden=width, global_batch=batch) for width in range(64) for batch in range(8)]
    judging = sum(each.judges for each in groups)
    assert 200 < judging < 312
    assert [number for number, each in enumerate(groups[:16]) if each.judges] == [0, 1, 4, 5, 6, 8, 9, 10, 11, 12, 14]
    assert all(row(hidden=width).judges for width in range(16)), "all others judge"
    assert row(source=FITTED, dp=2, micro_batches=2).judges == row(source=FITTED, tp=2, recompute="full").judges


# ---- what is concluded -----------------------------------------------------------------------------------------------


def compared(seconds: float, said: float, *, fits: bool = True, peak: float = 0.0, **changed: Any) -> Compared:
    """A row that took some seconds, of which others are predicted."""
    prediction = Prediction(row="", variant="", asked="", seconds=said, fits=fits, peaks=(peak, peak / 2))
    return Compared(row(seconds=seconds, **changed), prediction)


def test_errors_are_signed_and_rows_that_may_set_constants_do_not_judge() -> None:
    setting = next(batch for batch in range(99) if not row(source=FITTED, global_batch=batch).judges)
    found = VariantFindings(
        PLAIN, [
            compared(2.0, 1.0), compared(1.0, 1.2, gpu="Tesla_T4", dp=2, tp=2), compared(1.0, 1.1, phase="forward"),
            compared(1.0, 9.0, source=FITTED, global_batch=setting), compared(1.0, 7.0, use="ratio"),
        ],
    )  # fmt: skip
    tables = found.tables()
    assert tables["GPUs"].keys() == {"one"}
    assert tables["GPU"]["Tesla_P4"].values == pytest.approx((-0.5, 0.1))
    assert tables["kind of plan"].keys() == {"1 GPU", "dp+tp", "1 GPU, forward"}
    assert tables["source"][f"{FITTED}, groups that may set constants"].values == pytest.approx((8.0,))
    assert found.cells()[:4] == ["3", "20.0%", "+10.0%", "-50 to +20%"]


def test_ratios_between_plans_leave_out_what_all_predictions_are_wrong_by() -> None:
    """Of 4 GPUs for twice the batch, in GPU seconds for a sample: measured 2, predicted 3."""
    found = VariantFindings(PLAIN, [compared(1.0, 0.5), compared(1.0, 0.75, gpus=4, dp=4, global_batch=16)])
    assert found.ratios().values == pytest.approx((0.5,))
    assert VariantFindings(PLAIN, [compared(1.0, 0.5, phase="forward")] * 2).ratios().values == ()


def test_a_choice_loses_what_the_chosen_plan_is_slower_than_the_best() -> None:
    plans = [compared(1.0, 2.0, tp=2), compared(1.5, 1.0, dp=2), compared(2.0, 3.0, pp=2), compared(3.0, 4.0)]
    [choice] = VariantFindings(PLAIN, plans).choices()
    assert choice.lost == pytest.approx(0.5)
    assert choice.rank == pytest.approx(1 - 6 * 2 / (4 * 15))  # two neighbours are swapped
    assert VariantFindings(PLAIN, plans[:3]).choices() == []


def test_memory_is_that_of_the_fullest_device_or_of_all() -> None:
    found = VariantFindings(
        PLAIN, [
            compared(1.0, 1.0, peak=3.0, peak_bytes=2.0), compared(1.0, 1.0, peak=2.0, peak_bytes=6.0, fits=False,
            peak_kind="sum over devices"), compared(1.0, 1.0),
        ],
    )  # fmt: skip
    assert found.memory().values == pytest.approx((0.5, -0.5))
    assert [each.peak_bytes for each in found.unfit()] == [6.0]
    assert found.cells()[-1] == "1 of 3"


def test_a_peak_is_compared_as_it_was_read() -> None:
    """Tensors alone, with what the allocator reserves, or all that a GPU holds: more of it among several GPUs."""
    expected = {
        ("torch max_memory_allocated of the logging rank", 8): 10.0, ("max reserved over ranks", 8): 10.9,
        ("nvidia-smi, first or last node", 1): 11.4, ("largest device, max_memory (one run apart)", 4): 12.4,
    }  # fmt: skip
    for (kind, gpus), read_gib in expected.items():
        given = compared(1.0, 1.0, peak=10 * GIB, peak_bytes=10 * GIB, peak_kind=kind, gpus=gpus)
        assert given.memory_error == pytest.approx(read_gib / 10 - 1), kind


def test_a_row_that_is_too_long_to_simulate_says_its_peak() -> None:
    long = row(
        seconds=9.0, peak_bytes=1e9, global_batch=2 * 64 * 4, micro_batches=64, dp=4, tp=2, pp=2, gpus=16,
        stage_devices="A+B+C+D | E+F+G+H",
    )  # fmt: skip
    short = long.of_memory
    assert (short.micro_batches, short.dp, short.gpus, short.global_batch) == (4, 2, 8, 2 * 4 * 2)
    assert (short.stage_devices, short.seconds, short.peak_bytes) == ("A+B | E+F", 0.0, 1e9)
    assert short.of_memory == short


def test_refusals_count_as_not_said() -> None:
    refused = Compared(row(), Prediction(row="", variant="", asked="", refused="it has 7 of 8; take fewer"))
    asked = Asked([row(), row(), row(kind="unet")], [refused, compared(1.0, 1.0)])
    assert asked.unsaid == {"no such model: unet": 1, "refused: it has 7 of 8": 1}
    assert (asked.said, asked.predicted, asked.larger(1), asked.larger(2)) == (1, 1, 2, 0)


@pytest.mark.parametrize("gpus", [2, 4])
def test_an_all_reduce_takes_what_a_ring_does(gpus: int, tmp_path: Path) -> None:
    """2 (n - 1) messages one after another, each of an n-th part."""
    size = 2.0**20
    given = AllReduce(source="somebody", gpu="A100", gpus=gpus, what="all-reduce", bytes=size, seconds=1e-4)
    said = all_reduce(given, Variant("rings", all_reduce="ring"), tmp_path)
    expected = 2 * (gpus - 1) * (10e-6 + size / gpus / 300e9)
    assert said.seconds == pytest.approx(expected, rel=0.01)
    assert all_reduce_table([(given, said)], [size, 4.0]) == ((f"{gpus} x A100", f"{expected / 1e-4:.2f}", "-"),)


# ---- whole studies ---------------------------------------------------------------------------------------------------


def test_a_study_predicts_what_it_can_and_resumes_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        TINY, TINY | {"id": "tiny-2", "gpus": 2, "dp": 2}, TINY | {"id": "tiny-3", "kind": "unet"},
        TINY | {"id": "tiny-4", "gpus": 3, "pp": 3}, TINY | {"id": "tiny-5", "precision": "fp16 amp", "gpu": "GH-96"},
    ]  # fmt: skip
    with (tmp_path / "steps.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, sorted({key for each in rows for key in each}))
        writer.writeheader()
        writer.writerows(rows)
    (tmp_path / "collectives.csv").write_text("source,gpu,gpus,what,bytes,seconds\nsomebody,A100,2,sum,1048576,1e-4\n")
    ideal = {"runtime": "ideal", "cost_model": "roofline"}
    two = Variant(PLAIN.name, ideal), Variant("slow", ideal, device={"launch": "1ms"})
    monkeypatch.setattr(measured, "VARIANTS", two)
    study = Measured(out=tmp_path / "out", data=tmp_path)
    text = study.write().read_text()
    assert "3 of 5 rows can be said, and 3 of these are predicted." in text
    assert "| no such model: unet | 1 |" in text
    assert "| refused: parallel: ... has 2 blocks, of which 3 stages cannot have equally many | 1 |" in text
    assert "as by default; slow:" in text
    assert (tmp_path / "out" / "measured.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "step_errors.toml").read_text() == "", "neither variant has measured shares"
    kept = Predictions(tmp_path / "out" / "predictions.jsonl")
    found = {(each.id, way.name): kept.of(each, way) for each, way in asked_of(tmp_path, two)}
    seconds = {key: said.seconds for key, said in found.items() if said}
    assert seconds["tiny-1", "slow"] > 100 * seconds["tiny-1", "as by default"]
    for name in ("predicted", "all_reduce"):
        monkeypatch.setattr(measured, name, lambda *_, **__: pytest.fail("nothing is left"))
    assert study.write().read_text() == text
    lines = tmp_path / "out" / "predictions.jsonl"
    lines.write_bytes(lines.read_bytes()[:-9])
    assert sum(Predictions(lines).of(*each) is None for each in asked_of(tmp_path, two)) == 1, "one was cut short"


def asked_of(folder: Path, variants: Sequence[Variant]) -> list[tuple[Row, Variant]]:
    """All that is asked of the rows in a folder."""
    return [(each, way) for each in read(folder / "steps.csv", Row) if not why_not(each) for way in variants]


def test_rows_of_one_group_are_captured_together_in_an_order_of_their_hash() -> None:
    some = [row(id=str(number), global_batch=8 * (1 + number % 2), dp=1 + number) for number in range(6)]
    groups = list(together(some))
    assert sorted(len(each) for each in groups) == [3, 3]
    assert [each[0].hashed for each in groups] == sorted({each.hashed for each in some})


def test_without_rows_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no row is predicted yet; name the folder of measured rows, --data FOLDER"):
        Measured(out=tmp_path).write()
    with pytest.raises(InputError, match=r"\.csv.*; `--data` is a folder with steps.csv and collectives.csv"):
        Measured(out=tmp_path, data=tmp_path / "nowhere").write()
    (tmp_path / "collectives.csv").write_text("source\nsomebody\n")
    with pytest.raises(InputError, match="missing required field"):
        Measured(out=tmp_path, data=tmp_path).write()


def test_variants_have_names_of_their_own() -> None:
    assert len({each.name for each in VARIANTS}) == len(VARIANTS)
