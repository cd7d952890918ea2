"""The study of gains: what is kept of a gain, and a whole study, tiny."""

import math
from pathlib import Path

import pytest

from evaluation.studies.gains import cases
from evaluation.studies.gains.__main__ import study
from evaluation.studies.gains.document import GainFindings, save
from evaluation.studies.gains.measure import Measured, Run
from evaluation.studies.gains.processes import ALONE, ORDERS, InProcesses, Order, measured
from graphs.foundation.errors import InputError

TWO = """
schema = "placelab.cluster"
version = 1
name = "two processors"
[links]
latency = "60us"
bandwidth = "1.8GB/s"
""" + "".join(
    f"""
[[devices]]
name = "cpu:{number}"
kind = "cpu"
flops_per_second = "50GFLOP/s"
bytes_per_second = "10GB/s"
memory = "4GiB"
launch = 0
runner = "100us"
"""
    for number in range(2)
)


def run(planned: float, *others: float, order: str = "longest_path") -> Run:
    first_come, program, issued, deferred = others
    return Run(
        placer="heft", order=order, planned=planned, first_come=first_come, program=program, issued=issued,
        deferred=deferred, moved=0,
    )  # fmt: skip


def test_what_is_kept_is_a_part_of_the_gain() -> None:
    runs = (run(6.0, 8.0, 7.0, 11.0, 6.0), run(9.9, 1.0, 1.0, 1.0, 1.0), run(5.0, 5.0, 5.0, 9.0, 6.0, order="program"))
    model = Measured(model="a", spec="any", cluster="any", budget=5, ops=3, alone=10.0, runs=runs)
    found = GainFindings([model])
    assert found.gain(model, runs[0]) == 0.4
    assert found.gaining(model) == [runs[0]]  # the second gains 1%
    kept = {way: found.kept(model, runs[0], way) for way in ("first_come", "program", "issued", "deferred")}
    assert kept == {"first_come": 0.5, "program": 0.75, "issued": -0.25, "deferred": 1.0}
    assert found.median("issued") == -0.25
    assert [program for _, program in found.of_program(model)] == [runs[2]]


def of_orders(*milliseconds: float) -> InProcesses:
    names = (ALONE, *ORDERS)
    orders = tuple(
        Order(name=name, simulated=1e-3 * each, measured=2e-3 * each)
        for name, each in zip(names, milliseconds, strict=True)
    )
    return InProcesses(model="a", spec="any", cluster="two.toml", budget=5, rounds=1, orders=orders)


def test_orders_that_ran_are_shown_beside_their_simulation(tmp_path: Path) -> None:
    ran = of_orders(10.0, 6.0, 8.0, 12.0, 6.0)
    assert [ran.kept(name, "simulated") for name in ORDERS] == pytest.approx([1.0, 0.5, -0.5, 1.0])
    assert ran.kept("first come", "measured") == pytest.approx(0.5)
    assert math.isnan(of_orders(5.0, 6.0, 8.0, 12.0, 6.0).kept("deferred", "measured"))
    model = Measured(
        model="a", spec="any", cluster="any", budget=5, ops=3, alone=10.0, runs=(run(6.0, 8.0, 7.0, 11.0, 6.0),)
    )
    written = save(GainFindings([model], [ran]), tmp_path, "the command").read_text()
    assert "| a | first come | 8.00 | 16.00 | 0.50 | 0.50 |" in written
    assert "Nothing was measured" not in written


@pytest.mark.slow
def test_orders_run_in_processes(tmp_path: Path) -> None:
    cluster = tmp_path / "two.cluster.toml"
    cluster.write_text(TWO)
    found = measured(tmp_path, "RNN", "rnnlm:layers=2,steps=3,batch=32,hidden=64", str(cluster), 20, 1)
    assert [order.name for order in found.orders] == [ALONE, *ORDERS]
    assert all(order.simulated > 0 and order.measured > 0 for order in found.orders)
    with pytest.raises(InputError, match="give a cluster file of CPUs alone"):
        measured(tmp_path, "RNN", "rnnlm", "p100x2", 20, 1)


def test_a_study_of_gains_says_what_each_way_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "MODELS", {"RNN": "rnnlm:layers=2,steps=3,batch=32"})
    monkeypatch.setattr(cases, "PLANS", (("annealing", "longest_path"), ("annealing", "program")))
    with pytest.raises(InputError, match="no model is placed yet"):
        study(out=tmp_path, budget=200, write_only=True)
    document = study(out=tmp_path, budget=200)
    written = document.read_text()
    assert written.count("\n| RNN |") == 2
    assert "\n| median |" in written
    assert study(out=tmp_path, budget=200, write_only=True).read_text() == written
