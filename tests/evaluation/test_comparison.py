import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from envs.plans.placer_result import PlacerResult
from envs.simulation.robustness import robustness
from envs.simulation.simulator import simulate
from evaluation.comparing.compare import compare
from evaluation.comparing.comparison import Comparison
from evaluation.records.journal import records
from evaluation.records.record import Record
from evaluation.records.run_files import EvaluationFile, Notes, load_evaluation
from graphs.foundation.documents import write_document
from graphs.foundation.errors import InputError
from graphs.problem import Problem, objective_of
from tests.evaluation.some_placers import Alternating
from tests.evaluation.some_records import LEARNED, SOME, record
from tests.oracle.toys import Toy, toy_cluster, toy_graph


def test_compare_reports_what_the_simulator_says_of_each_plan(four_ops_two_devices: Toy) -> None:
    problem = four_ops_two_devices.problem
    comparison = compare([Alternating()], [problem], seeds=(0, 1), quiet=True)
    assert [found.seed for found in comparison.records] == [0, 1]
    for found in comparison.records:
        timeline = simulate(problem, Alternating().place(problem, seed=found.seed).plan)
        assert found.step_seconds == timeline.step_seconds
        assert found.peak_bytes == tuple(timeline.peak_bytes)
        assert found.fits == timeline.fits
        assert 0 < found.lower_bound_seconds <= four_ops_two_devices.best_seconds
        assert found.search_seconds >= 0


def test_placers_may_be_named(four_ops_two_devices: Toy) -> None:
    comparison = compare(["round_robin", Alternating()], [four_ops_two_devices.problem], quiet=True)
    assert comparison.placers == ("round_robin", "alternating")


def test_placers_that_use_one_device_of_several_are_named(four_ops_two_devices: Toy) -> None:
    comparison = compare(["single_device", Alternating()], [four_ops_two_devices.problem], quiet=True)
    assert comparison.remarks == ("Op groups: 4.", "All ops on one device: single_device.")


def test_a_placer_gets_its_own_budget_and_must_keep_to_it(four_ops_two_devices: Toy) -> None:
    problems, greedy = [four_ops_two_devices.problem], Alternating(simulations=5)
    assert compare([greedy], problems, budget={"alternating": 5}, quiet=True).records[0].simulations == 5
    with pytest.raises(InputError, match=r"'alternating' simulated 5 placements .* budget is 4"):
        compare([greedy], problems, budget=4, quiet=True)
    with pytest.raises(InputError, match="unknown placer 'alternatin'"):
        compare([greedy], problems, budget={"alternatin": 5}, quiet=True)


@dataclass(frozen=True)
class Failing:
    """Gives up on some problems."""

    name: str = "failing"
    on: str = ""  # part of the names of those

    def place(self, problem: Problem, *, seed: int = 0, budget: int = 1) -> PlacerResult:
        if self.on in problem.name:
            raise ZeroDivisionError("nothing to divide by")
        return PlacerResult.of_units(problem, np.zeros(problem.graph.num_units, int), self.name, seed)


def two_problems() -> list[Problem]:
    return [Problem(toy_graph([1, 2], [(0, 1)], name=name), toy_cluster(2)) for name in ("easy", "hard")]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_placer_that_fails_loses_nothing_else(workers: int) -> None:
    comparison = compare([Failing(on="hard"), Alternating()], two_problems(), workers=workers, quiet=True)
    assert [(r.problem, r.placer) for r in comparison.records] == [
        ("easy@toy2", "failing"), ("easy@toy2", "alternating"), ("hard@toy2", "alternating")
    ]  # fmt: skip
    assert [(f.problem, f.reason) for f in comparison.failures] == [
        ("hard@toy2", "ZeroDivisionError: nothing to divide by")
    ]
    with pytest.raises(InputError, match="every placer failed: failing on easy@toy2: ZeroDivisionError"):
        compare([Failing()], two_problems(), quiet=True)


def test_a_journal_resumes_where_a_comparison_stopped(tmp_path: Path) -> None:
    journal = tmp_path / "so.far.jsonl"
    first = compare([Alternating()], two_problems()[:1], journal=journal, quiet=True)
    with journal.open("ab") as file:
        file.write(b'{"problem": "hard@to')  # cut off
    both = compare([Alternating()], two_problems(), journal=journal, quiet=True)
    assert both.records[:1] == first.records
    assert [record.problem for record in records(journal)] == ["easy@toy2", "hard@toy2"]
    kept = journal.read_bytes()
    again = compare([Alternating()], two_problems(), journal=journal, quiet=True)
    assert again.records == both.records
    assert journal.read_bytes() == kept
    journal.write_text("{}\n")
    with pytest.raises(InputError, match="is no journal of a comparison"):
        compare([Alternating()], two_problems(), journal=journal, quiet=True)
    with pytest.raises(InputError, match=r"the folder .* does not exist"):
        compare([Alternating()], two_problems(), journal=tmp_path / "none" / "a.jsonl", quiet=True)


def test_nothing_to_compare_and_equal_names_are_refused(four_ops_two_devices: Toy) -> None:
    problem, placer = four_ops_two_devices.problem, Alternating()
    with pytest.raises(InputError, match="no placers"):
        compare([], [problem])
    with pytest.raises(InputError, match="no problems"):
        compare([placer], [])
    with pytest.raises(InputError, match="no seeds"):
        compare([placer], [problem], seeds=())
    with pytest.raises(InputError, match="placer 'alternating' is given twice"):
        compare([placer, Alternating(every=3)], [problem])
    with pytest.raises(InputError, match="problem 'toy@toy2' is given twice"):
        compare([placer], [problem, four_ops_two_devices.problem])


def test_a_record_has_these_keys_in_json(four_ops_two_devices: Toy) -> None:
    records = compare([Alternating()], [four_ops_two_devices.problem], quiet=True).to_json()
    [found] = json.loads(json.dumps(records))
    assert list(found) == [
        "problem", "placer", "seed", "step_seconds", "fits", "peak_bytes", "simulations", "search_seconds",
        "lower_bound_seconds", "key", "budget", "cost_model", "conditions", "order", "program_seconds",
        "latency_seconds", "alone_seconds",
    ]  # fmt: skip
    assert isinstance(found["peak_bytes"], list)
    assert len(found["peak_bytes"]) == 2


def test_a_robust_comparison_times_each_plan_under_noise(tmp_path: Path) -> None:
    [problem, _] = two_problems()
    journal = tmp_path / "j.jsonl"
    plain = compare([Alternating()], [problem], journal=journal, quiet=True)
    robust = compare([Alternating()], [problem], robust=True, journal=journal, quiet=True)
    [found] = robust.records
    expected = robustness(problem, Alternating().place(problem).plan)
    assert (found.robust_seconds, found.worst_seconds, found.free_seconds) == (
        expected.median_seconds, expected.worst_seconds, expected.free_seconds
    )  # fmt: skip
    assert found.step_seconds == plain.records[0].step_seconds
    assert robust.objective_seconds[0, 0] == expected.median_seconds
    assert compare([Alternating()], [problem], journal=journal, quiet=True).records == plain.records, "not this one"
    with pytest.raises(InputError, match="a robust comparison is one of step times, not of 'max-load'"):
        compare([Alternating()], [replace(problem, objective=objective_of("max-load"))], robust=True, quiet=True)


def test_what_the_objective_says_of_a_plan_is_in_seconds() -> None:
    problem = replace(two_problems()[0], objective=objective_of("max-load"))
    [found] = compare([Alternating()], [problem], quiet=True).records
    assert found.objective == "max-load"
    assert found.objective_value == found.objective_seconds == 2.5, "the second op, and its side of a transfer"
    assert found.max_load == 2500.0


def test_json_holds_the_records() -> None:
    assert msgspec.convert(json.loads(json.dumps(Comparison(SOME).to_json())), tuple[Record, ...]) == SOME


def test_ratios_to_the_best_count_only_what_fits() -> None:
    comparison = Comparison(SOME)
    np.testing.assert_allclose(comparison.over_best, [[1.0, 2.0, 1.25], [2.0, np.nan, 1.0]])
    np.testing.assert_allclose(comparison.over_bound, [[2.0, 4.0, 2.5], [3.0, np.nan, 1.5]])


def test_relative_is_over_the_problems_where_both_fit() -> None:
    comparison = Comparison(SOME)
    assert comparison.relative(LEARNED, "metis").value == pytest.approx(0.5)
    assert comparison.relative(LEARNED, "metis").count == 1
    assert comparison.relative(LEARNED, "annealing").value == pytest.approx(math.sqrt(0.8 * 2.0))
    with pytest.raises(InputError, match="unknown placer 'anealing'; did you mean 'annealing'"):
        comparison.relative(LEARNED, "anealing")


def test_the_summary_puts_those_that_fit_first_and_the_fast_before_the_slow() -> None:
    rows = Comparison(SOME).summary()
    assert [row.placer for row in rows] == ["annealing", LEARNED, "metis"]
    assert [(row.fits, row.problems) for row in rows] == [(2, 2), (2, 2), (1, 2)]
    assert rows[0].over_best.value == pytest.approx(math.sqrt(1.25))
    assert math.isnan(rows[0].over_best.low), "of two problems there is no interval"
    assert rows[0].simulations == 1000


def test_seeds_are_averaged_and_all_of_them_must_fit() -> None:
    comparison = Comparison(
        (
            record("p@c", "a", 1.0, seed=0), record("p@c", "a", 4.0, seed=1),
            record("p@c", "b", 1.0, seed=0), record("p@c", "b", 1.0, seed=1, fits=False),
        )
    )  # fmt: skip
    assert comparison.step_seconds.tolist() == pytest.approx(np.array([[2.0, 1.0]]))
    assert comparison.fits.tolist() == [[True, False]]
    assert comparison.over_best[0, 0] == 1.0


def test_nothing_that_fits_gives_no_ratios_and_no_warnings() -> None:
    comparison = Comparison((record("p@c", "a", 1.0, fits=False),))
    assert np.isnan(comparison.over_best).all()
    assert math.isnan(comparison.summary()[0].over_best.value)
    assert Comparison(()).summary() == ()


def test_labels_drop_the_checkpoint_unless_that_confuses() -> None:
    names = ("gdp:checkpoint=a/b", "gdp:checkpoint=a/b+finetuned", "metis:seeds=20", "heft")
    labels = Comparison(tuple(record("p@c", name, 1.0) for name in names)).labels
    assert list(labels.values()) == ["gdp", "gdp+finetuned", "metis:seeds=20", "heft"]
    two = Comparison((record("p@c", "gdp:checkpoint=a", 1.0), record("p@c", "gdp:checkpoint=b", 1.0))).labels
    assert list(two.values()) == ["gdp:checkpoint=a", "gdp:checkpoint=b"]


def test_an_evaluation_file_goes_there_and_back_and_refuses_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "evaluation.json"
    content = EvaluationFile(notes=Notes(learned=LEARNED), records=SOME)
    write_document(content, path)
    assert load_evaluation(path) == content
    data = json.loads(path.read_text())
    for broken, message in (
        ({**data, "version": 2}, "version 2, this placelab reads version 1"),
        ({**data, "more": 1}, "unknown key 'more'"),
        ({**data, "records": [{**data["records"][0], "fits": "yes"}]}, r"json: records\[0\]\.fits"),
    ):
        path.write_text(json.dumps(broken))
        with pytest.raises(InputError, match=message):
            load_evaluation(path)
    with pytest.raises(InputError, match=r"other\.json does not exist"):
        load_evaluation(tmp_path / "other.json")
