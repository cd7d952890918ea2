"""`make gpu-check`, on a processor in place of a GPU."""

from pathlib import Path

import msgspec
import pytest
import torch

from evaluation.gpu_check.__main__ import PARTS, Check, main, measured
from evaluation.gpu_check.card import MODELS, Card
from evaluation.gpu_check.page import main as write_page
from evaluation.gpu_check.page import page
from evaluation.gpu_check.steps import COST_MODELS, GIB, WAYS, predicted
from graphs.foundation.errors import InputError

H100 = Path(__file__).resolve().parents[2] / "evaluation" / "gpu_check" / "measured" / "h100.json"
CPU = Card(torch.device("cpu"), "server-cpu", small=True)


@pytest.mark.slow
def test_every_part_measures_something(tmp_path: Path) -> None:
    out = tmp_path / "check.json"
    given = ["--device", "cpu", "--devices", "cpu,cpu", "--kind", "server-cpu", "--small", "--minutes", "60"]
    assert main([*given, "--out", str(out)]) == 0
    check = msgspec.json.decode(out.read_bytes(), type=Check)
    assert not check.failed
    assert all(check.rows[part] for part in PARTS)
    compared = (row for part in ("placements", "one_card_twice", "replay") for row in check.rows[part])
    assert all(row.get("loss_differs", 0.0) < 1e-6 for row in compared)  # type: ignore[operator]
    assert all(row["aside_differs"] < 1e-6 for row in check.rows["one_card_twice"])  # type: ignore[operator]
    assert all(row["equal"] == "yes" for row in check.rows["processes"])
    target = tmp_path / "check.md"
    write_page(out, target)
    text = target.read_text()
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        f"## {part.replace('_', ' ').capitalize()}" for part in PARTS
    ]
    assert "ended early" not in text


def test_a_part_that_fails_ends_alone_and_the_page_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(card: Card) -> object:
        yield {"copy": "there", "gb_per_s": 2.0}
        raise RuntimeError("out of memory\nand more")

    monkeypatch.setitem(PARTS, "copies", (fails, 0.5))
    check = measured(CPU, 1.0, tmp_path / "check.json", ("copies", "peaks"))
    assert check.rows["copies"] == [{"copy": "there", "gb_per_s": 2.0}]
    assert [row["unit"] for row in check.rows["peaks"]] == ["TFLOP/s"] * 3 + ["TB/s"]
    assert msgspec.json.decode((tmp_path / "check.json").read_bytes(), type=Check) == check
    assert "| there | 2 |" in page(check)
    assert "The part ended early: RuntimeError: out of memory." in page(check)


def test_an_unknown_part_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown part 'peak'; there are: peaks, kernels"):
        main(["--kind", "h100", "--only", "peak", "--out", str(tmp_path / "check.json")])


@pytest.mark.parametrize("way", ["bf16 weights", "autocast bf16"])
def test_steps_in_half_precision_take_what_was_measured_on_an_h100(way: str) -> None:
    """Of the model that the GPU bounds, and not the host; GiB without what PyTorch keeps besides tensors."""
    rows = msgspec.json.decode(H100.read_bytes(), type=Check).rows["steps"]
    [row] = [row for row in rows if (row["model"], row["way"]) == ("transformer", way)]
    card = Card(torch.device("cuda"), "h100")
    _, timeline = predicted(card, MODELS["transformer"], "adam", COST_MODELS["typical"], WAYS[way][0])
    assert 1e3 * timeline.step_seconds == pytest.approx(row["measured_ms"], rel=0.04)
    assert timeline.peak_bytes[0] / GIB == pytest.approx(row["allocated_gib"], rel=0.02)
