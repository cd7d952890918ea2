"""The study of whole plans: what it concludes from measurements, and a whole study, tiny."""

from pathlib import Path

import pytest

from evaluation.studies.whole_plans import __main__ as main
from evaluation.studies.whole_plans.cases import VALIDATION, Case
from evaluation.studies.whole_plans.document import WholePlansFindings, save
from evaluation.studies.whole_plans.measure import Found, Measured, OfSeed
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from placers.learned.policy_file import save_policy
from placers.learned.policy_meta import Meta
from placers.learned.whole_plans.decision_features import FEATURES
from placers.learned.whole_plans.policy import KIND, WholePlansPolicy
from tests.contracts.test_placers import training_graph
from tests.oracle.toys import toy_cluster


def found(seconds: float, *, fits: bool = True, took: float = 1.0) -> Found:
    """A plan that takes seconds."""
    return Found(seconds=seconds, fits=fits, took=took, simulations=1)


def measured(model: str, alone: list[float], reached: list[float | None]) -> Measured:
    """A case on which the planner takes a second; seconds below nothing are of plans that do not fit."""
    plans = (found(abs(each), fits=each > 0, took=0.1) for each in alone)
    policies = tuple(
        OfSeed(seed=seed, alone=plan, several=found(1.0), proposing=found(1.0), reached=reached[seed])
        for seed, plan in enumerate(plans)
    )
    return Measured(
        split=VALIDATION, model=model, cluster="any", budget=5, planner=found(1.0), reached=100.0, policies=policies
    )


def test_losses_are_named_and_means_are_of_models(tmp_path: Path) -> None:
    findings = WholePlansFindings([measured("a", [1.0, 1.21], [10.0, None]), measured("b", [1.5, -2.0], [50.0, 50.0])])
    assert findings.step(VALIDATION, "alone").value == pytest.approx((1.1 * 1.5) ** 0.5)
    assert findings.took(VALIDATION, "alone").value == pytest.approx(0.1)
    assert findings.fewer(VALIDATION).value == pytest.approx((10.0 * 2.0) ** 0.5)
    assert (findings.never(VALIDATION), findings.plans(VALIDATION)) == (1, 4)
    assert (findings.unfit(VALIDATION, "alone"), findings.unfit(VALIDATION, "several")) == (1, 0)
    assert [(case.model, seed.seed) for case, seed, _ in findings.far(VALIDATION)] == [("b", 1), ("b", 0), ("a", 1)]
    written = save(findings, tmp_path, "command").read_text()
    assert "3 of 4 plans" in written
    assert "b on any (seed 1: does not fit), b on any (seed 0: 1.50), a on any (seed 1: 1.21)" in written


def test_a_whole_study_is_measured_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(VALIDATION, "toy", "two", lambda: Problem(training_graph(), toy_cluster(2)))
    monkeypatch.setattr(main, "cases", lambda: [case])
    with pytest.raises(InputError, match="seed0 holds no policy"):
        main.study(policies=tmp_path, seeds=1, budget=20, out=tmp_path / "study")
    (tmp_path / "seed0").mkdir()
    meta = Meta(placer=KIND, network=KIND, seed=0, decoder_features=FEATURES)
    save_policy(tmp_path / "seed0", WholePlansPolicy.new(KIND, 0).state_dict(), meta)
    with pytest.raises(InputError, match="no case is planned yet"):
        main.study(policies=tmp_path, seeds=1, budget=20, out=tmp_path / "study", write_only=True)
    written = main.study(policies=tmp_path, seeds=1, budget=20, out=tmp_path / "study").read_text()
    assert "| toy | two |" in written
    assert main.study(policies=tmp_path, seeds=1, budget=20, out=tmp_path / "study").read_text() == written
