"""The study of optimal orders: on a problem where every rule loses, and a whole study, tiny."""

from pathlib import Path

import pytest

from evaluation.studies.optimal_orders import proofs
from evaluation.studies.optimal_orders.__main__ import study
from evaluation.studies.optimal_orders.document import OrderFindings
from evaluation.studies.optimal_orders.proofs import RULES, Proof, proof
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from tests.oracle.toys import toy_cluster, toy_graph

# All rules run a before b; the best plan does not (tests/placers/test_exact.py).
GRAPH = toy_graph([1, 1, 6.5, 6], [(0, 2), (1, 3)], output_bytes=[3, 2, 1, 1], group=[0, 0, -1, -1])


def test_what_rules_lose_is_proven() -> None:
    found = proof(Problem(GRAPH, toy_cluster(2)), work=1.0)
    assert found.rule_seconds == dict.fromkeys(RULES, 10.0)
    assert found.free_seconds == 9.0
    findings = OrderFindings([found])
    assert findings.proven == 1
    assert findings.mean("fifo") == findings.worst("program") == pytest.approx(10 / 9)
    assert findings.optimal == dict.fromkeys(RULES, 0)


def test_a_gap_is_what_is_left_over_the_bound() -> None:
    open_one = Proof(
        problem="x@y", ops=9, groups=3, rule_seconds={"fifo": 3.0, "program": 4.0, "longest_path": 2.2},
        free_seconds=2.2, bound_seconds=2.0,
    )  # fmt: skip
    findings = OrderFindings([open_one])
    assert open_one.gap == pytest.approx(0.1)
    assert findings.proven == 0
    assert findings.optimal == {"fifo": 0, "program": 0, "longest_path": 1}


def test_a_study_says_what_each_rule_loses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "GRAPHS", ("layered:depth=2,breadth=2",))
    monkeypatch.setattr(proofs, "CLUSTERS", ("p100:devices=2",))
    with pytest.raises(InputError, match="no problem is solved yet"):
        study(out=tmp_path, write_only=True)
    document = study(groups=4, out=tmp_path)
    written = document.read_text()
    assert written.count("| `layered") == 1
    assert "1 of 1 optima are proven" in written
    assert study(groups=4, out=tmp_path).read_text() == written
