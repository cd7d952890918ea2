"""`make gpu-check`, on a processor in place of a GPU."""

from pathlib import Path

import msgspec
import pytest
import torch

from evaluation.gpu_check.__main__ import PARTS, Check, main, measured
from evaluation.gpu_check.card import Card
from evaluation.gpu_check.page import page
from graphs.foundation.errors import InputError

CPU = Card(torch.device("cpu"), "server-cpu", small=True)


@pytest.mark.slow
def test_every_part_measures_something(tmp_path: Path) -> None:
    out = tmp_path / "check.json"
    assert main(["--device", "cpu", "--kind", "server-cpu", "--small", "--minutes", "60", "--out", str(out)]) == 0
    check = msgspec.json.decode(out.read_bytes(), type=Check)
    assert not check.failed
    assert all(check.rows[part] for part in PARTS)
    assert all(row["loss_differs"] < 1e-6 for part in ("placements", "one_card_twice") for row in check.rows[part])  # type: ignore[operator]
    assert all(row["equal"] == "yes" for row in check.rows["processes"])


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
