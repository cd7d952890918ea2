"""The study of repairs: both comparisons, of whatever was searched."""

from pathlib import Path

import pytest

from evaluation.studies.repairs.__main__ import study
from graphs.foundation.errors import InputError
from tests.placers.stand_in import stand_in


def test_it_compares_searches_and_resumes(tmp_path: Path) -> None:
    policy = str(stand_in(tmp_path / "policy"))
    asked = {"policy": policy, "graphs": "layered:seed=6,depth=3,breadth=2", "groups": "16", "budget": 60, "seeds": 2}
    path = study(**asked, out=tmp_path / "study")  # type: ignore[arg-type]
    text = path.read_text()
    assert "`neural_lns`" in text
    assert "2 seeds" in text
    assert len([line for line in text.splitlines() if "in 16 |" in line]) == 1
    assert len(list((tmp_path / "study" / "pieces").iterdir())) == 2
    assert study(**asked, out=tmp_path / "study", write_only=True).read_text() == text  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no problem is searched yet"):
        study(policy=policy, moves=0.1, out=tmp_path / "study", write_only=True)


def test_nothing_to_search_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one number of op groups"):
        study(groups="", out=tmp_path)
