"""The study of the released policy: ratios and losses on made-up records, and a whole one of tiny graphs."""

import math
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from envs.simulation.simulator import Simulator
from evaluation.comparing.task import Task
from evaluation.records.journal import JournalEntry
from evaluation.records.record import Failure, Record
from evaluation.studies.comparisons import CHEAP
from evaluation.studies.frame import Frame
from evaluation.studies.problems import suite_problems
from evaluation.studies.released import parts as released_parts
from evaluation.studies.released.__main__ import Released
from evaluation.studies.released.document import lost, save
from evaluation.studies.released.other_papers import OPS, doppler_problem, giph_problem
from evaluation.studies.released.parts import (
    ANNEALING,
    BEST,
    BEST_CHEAP,
    BEST_KNOWN,
    FEW,
    GREEDY,
    LONG,
    OTHER_BEST,
    OTHER_GREEDY,
    SEARCH,
    allowed,
    doppler_problems,
    other_policies,
    part_of,
    profile_problems,
    records_of,
)  # fmt: skip
from graphs.files.suites import SUITES
from graphs.formats.pipedream import LayerProfile, ProfiledLayer
from graphs.foundation.errors import InputError
from graphs.problem import Problem
from graphs.runtime import FIFO
from placers import default
from tests.evaluation.some_records import record
from tests.graphs.formats.written_profiles import save_layer_profile
from tests.oracle.toys import random_graph, toy_cluster
from tests.placers.stand_in import release

ONE, OTHER, NEW = "ptb:cell=1@two", "nmt:cell=2@two", "xlnet:layers=4@two"


def placed(problem: str, greedy: float, heft: float, metis: float, expert: float = 8.0) -> list[Record]:
    """By the policy, greedily and as the best of 16, and by three cheap placers."""
    return [
        record(problem, GREEDY, greedy), record(problem, BEST, min(greedy, 3.0)), record(problem, SEARCH, 1.0),
        record(problem, "heft", heft), record(problem, "metis", metis), record(problem, "human_expert", expert),
    ]  # fmt: skip


def heldout() -> Frame:
    """The policy wins on one graph against HEFT, and loses on the other against METIS."""
    return part_of([*placed(ONE, 2.0, 4.0, 6.0), *placed(OTHER, 4.0, 8.0, 2.0)])


def newfamilies() -> Frame:
    """The policy loses on a graph of a family kept aside."""
    return part_of(placed(NEW, 3.0, 2.0, 2.0))


def test_the_best_cheap_placer_is_another_for_each_problem_and_fits() -> None:
    assert heldout().means[BEST_CHEAP].tolist() == [4.0, 2.0]
    assert [(problem, who) for problem, _, who in lost(heldout())] == [(OTHER, "metis")]
    unfit = part_of([record(ONE, "heft", 1.0, fits=False), record(ONE, "metis", 4.0)])
    assert unfit.means[BEST_CHEAP].tolist() == [4.0]
    assert part_of([record(ONE, "heft", 1.0, fits=False)]).means[BEST_CHEAP].tolist() == [math.inf]
    assert math.isnan(part_of([record(ONE, ANNEALING, 1.0)]).means[BEST_CHEAP][0]), "search is not cheap"


def test_a_ratio_is_a_geometric_mean_over_problems_with_its_wins() -> None:
    part = heldout()
    against = part.against(GREEDY, BEST_CHEAP)
    assert against.ratio.value == pytest.approx(math.sqrt(2 / 4 * 4 / 2))
    assert math.isnan(against.ratio.low), "of two problems there is no interval"
    assert (against.wins, against.losses, against.problems) == (1, 1, 2)
    assert part.against(GREEDY, "heft").ratio.value == pytest.approx(0.5)
    assert part.against(GREEDY, "heft", [ONE]).problems == 1
    assert part.against(GREEDY, "heft", []).problems == 0, "none is not all"
    assert part.against(GREEDY, "peft").problems == 0, "not done yet"


def test_seconds_are_means_of_plans_and_of_the_best_of_several_what_all_take() -> None:
    part = heldout()  # each plan takes a quarter of a second
    assert part.takes(GREEDY) == part.takes("heft") == 0.25
    assert part.takes(BEST_CHEAP) == 3 * 0.25
    assert part.takes("peft") == 0.0, "not done yet"


def test_equal_times_are_no_win_and_several_seeds_are_one_entry() -> None:
    part = part_of([record(ONE, GREEDY, 2.0), record(ONE, "heft", 2.0), record(OTHER, BEST, 1.0)])
    equal = part.against(GREEDY, "heft")
    assert (equal.wins, equal.losses, equal.problems) == (0, 0, 1)
    seeds = [record(ONE, BEST, 1.0), record(ONE, BEST, 4.0, seed=1), record(ONE, "heft", 2.0)]
    twice = part_of(seeds)
    assert twice.means[BEST].tolist() == [pytest.approx(2.0)]
    assert twice.num_seeds == 2


def test_plans_that_do_not_fit_are_in_no_mean_but_lose_to_those_that_do() -> None:
    some = [record(ONE, GREEDY, 1.0, fits=False), record(ONE, "heft", 2.0), record(ONE, "metis", 3.0, fits=False)]
    part = part_of([*some, record(OTHER, GREEDY, 1.0), record(OTHER, "heft", 2.0)])
    against = part.against(GREEDY, "heft")
    assert against.ratio.value == pytest.approx(0.5)
    assert (against.wins, against.losses, against.unfit) == (1, 1, 1)
    neither = part.against(GREEDY, "metis")
    assert (neither.wins, neither.losses, neither.unfit, neither.problems) == (0, 0, 0, 1)
    assert part.unfit(GREEDY) == 1
    assert part.unfit(GREEDY, [OTHER]) == 0


def test_the_document_has_ratios_and_names_what_is_lost(tmp_path: Path) -> None:
    text = save(Released(), {"heldout": heldout(), "newfamilies": newfamilies()}, tmp_path).read_text()
    assert "| human expert | 0.354 2/2 |" in text
    assert "| best cheap of each graph | 1.000 1/2 |" in text
    assert "| (CPU seconds) | 0.25 | 0.25 | 0.25 | 0.00 | 0.00 | 0.00 |  |  |" in text
    assert "| heldout | nmt:cell=2 | two | 2.000 | 1.500 | 0.500 | metis |" in text
    assert "| heldout | ptb:cell=1" not in text, "won"
    assert "- `heldout`, greedy: nmt (2.000)." in text
    assert "- `newfamilies`, best of n: xlnet (1.500)." in text
    assert "heft (" not in text, "done"
    assert "peft (2)" in text, "not done yet"
    assert "    python -m evaluation.studies.released --parts heldout,newfamilies --seeds 1\n" in text
    assert not re.search(r"\bnan\b|\binf\b", text)


def test_where_nothing_is_lost_the_document_says_so(tmp_path: Path) -> None:
    part = part_of(placed(ONE, 2.0, 4.0, 6.0))
    assert "On no problem is the best cheap placer faster" in save(Released(), {"heldout": part}, tmp_path).read_text()


def test_all_may_simulate_little() -> None:
    assert {allowed("heldout")[placer] for placer in (GREEDY, BEST, SEARCH, ANNEALING)} == {FEW}
    assert {allowed("heldout")[placer] for placer in CHEAP} == {1}


def test_the_other_policy_is_the_one_that_default_does_not_ask() -> None:
    others = {
        (part, runtime): other_policies(part, runtime)[OTHER_BEST].rpartition("/")[2]
        for part, runtime in (("heldout", "ideal"), ("heldout", "auto"), ("heldout", "run"), ("giph", "auto"))
    }
    assert [*others.values()] == ["released_world", "released", "released", "released_world"]
    for part, runtime in (("heldout", "parallelize"), ("heldout", "ideal")):
        specs = other_policies(part, runtime)
        found = part_of([record(ONE, specs[OTHER_GREEDY], 4.0), record(ONE, specs[OTHER_BEST], 2.0)])
        assert [found.means[each].tolist() for each in (OTHER_GREEDY, OTHER_BEST)] == [[4.0], [2.0]]


def test_the_best_known_plan_is_that_of_any_placer_or_long_search() -> None:
    long = [record(ONE, ANNEALING, 0.5, budget=LONG), record(ONE, SEARCH, 0.75, budget=LONG)]
    found = part_of([*placed(ONE, 2.0, 4.0, 6.0), *long, *placed(OTHER, 2.0, 4.0, 6.0)])
    assert found.means[BEST_KNOWN][0] == 0.5
    assert math.isnan(found.means[BEST_KNOWN][1]), "nobody searched"
    assert math.isnan(found.means[ANNEALING][0]), "with few simulations it was not asked"


def test_graphs_of_doppler_are_read_and_timed_as_in_its_simulator(tmp_path: Path) -> None:
    (tmp_path / "doppler").mkdir()
    path = tmp_path / "doppler/three.txt"
    path.write_text("4\n0, \n0, 1, \n2, 2, \n10000000000,40000000000\n20000000000,80000000000\n5000000000,0\n")
    assert [*doppler_problems(tmp_path)] == ["three@doppler"]
    problem = doppler_problem(path)
    run = Simulator(problem).run
    assert run([0, 0, 0]).step_seconds == pytest.approx(3.5)
    assert run([0, 1, 0]).step_seconds == pytest.approx(10.5), "the second takes 2 s, and its output 8"
    path.write_text("4\n0, \n0, 1\n2\n1,4\n")
    with pytest.raises(InputError, match="is no graph of DOPPLER"):
        doppler_problem(path)


def test_programs_of_giphs_kind_are_dense_and_say_where_each_op_may_run() -> None:
    problem = giph_problem(3)
    graph, allowed = problem.graph, problem.allowed
    assert allowed is not None
    assert allowed.any(axis=1).all()
    assert allowed[[0, -1]].sum(axis=1).tolist() == [1, 1]
    assert set(graph.edges[:, 1]) == {*range(1, OPS)}, "all but the first follow from some"
    assert set(graph.edges[:, 0]) == {*range(OPS - 1)}
    pairs = (OPS - 2) * (OPS - 3) / 2
    inner = (graph.edges[:, 0] > 0) & (graph.edges[:, 1] < OPS - 1)
    assert inner.sum() / pairs == pytest.approx(0.8, abs=0.12)
    assert problem.runtime.order == FIFO


def test_a_problem_is_known_by_name_before_its_model_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUITES, "small", lambda: (("layered:seed=0", "p100:devices=2"),))
    problems = suite_problems("small", groups=64)
    assert [(name, make().name) for name, make in problems.items()] == [("layered:seed=0@p100:devices=2",) * 2]
    assert problems["layered:seed=0@p100:devices=2"]().graph.num_units == 64


def test_profiles_cost_what_was_measured_and_a_licence_is_none(tmp_path: Path) -> None:
    assert profile_problems(tmp_path) == {}
    (tmp_path / "pipedream").mkdir()
    layers = tuple(ProfiledLayer(f"node{i}", "Linear", 1.0 + i, 2.0, (8.0,), False, 4.0) for i in range(3))
    edges = (("node0", "node1"), ("node1", "node2"))
    save_layer_profile(LayerProfile("three", layers, edges), tmp_path / "pipedream" / "three.txt")
    (tmp_path / "pipedream" / "LICENSE.txt").write_text("Take it.\n")
    problems = profile_problems(tmp_path)
    assert list(problems) == ["three@p100:devices=4"]
    problem = problems["three@p100:devices=4"]()
    assert problem.op_seconds is not None
    assert problem.op_seconds[:3].tolist() == [[1.0] * 4, [2.0] * 4, [3.0] * 4]


def _given(problem: Problem) -> Problem:
    return problem


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str, int, int | None]]:
    """Two problems of few ops, a stand-in for the policy, and two cheap placers; what is placed is noted."""
    release(monkeypatch, tmp_path)
    problems = [Problem(random_graph(6 + i, i), toy_cluster(2, memory=1e4)) for i in range(2)]
    named = {problem.name: partial(_given, problem) for problem in problems}
    monkeypatch.setattr(released_parts, "suite_problems", lambda part, **_: named)
    monkeypatch.setattr(released_parts, "CHEAP", ("heft", "single_device"))
    noted: list[tuple[str, str, int, int | None]] = []
    do = Task.do

    def watched(work: Task) -> JournalEntry | Failure:
        if len(noted) == 4:
            noted.append(("", "stopped", 0, 0))
            raise KeyboardInterrupt
        noted.append((work.shown_as, work.placer.name, work.seed, work.budget))
        return do(work)

    monkeypatch.setattr(Task, "do", watched)
    return noted


def test_a_study_goes_on_where_it_was_stopped(tiny: Sequence[tuple[str, str, int, int | None]], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        Released(parts="heldout", out=out).write()
    assert len(records_of("heldout", out)) == 4
    path = Released(parts="heldout", out=out).write()
    keys = [key for key in tiny if key[1] != "stopped"]
    assert len(keys) == len(set(keys)) == 2 * (9 + 2), "each placer on each problem with each budget, once"
    text = path.read_text()
    assert "2 problems." in text
    assert "--parts heldout --seeds 1" in text
    Released(parts="heldout", out=out).write()
    assert len(tiny) == 23, "nothing was left to do"
    assert Released(out=out, document=tmp_path / "doc", write_only=True).write().read_text() == text


def test_a_folder_is_of_one_policy_and_parts_have_names(
    monkeypatch: pytest.MonkeyPatch, tiny: Sequence[object], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.raises(InputError, match="unknown part of the study 'heldput'; did you mean 'heldout'"):
        Released(parts="heldput", out=out).write()
    with pytest.raises(InputError, match="at least one part and one seed"):
        Released(parts="", out=out).write()
    with pytest.raises(InputError, match="nothing is done yet of heldout"):
        Released(parts="heldout", out=out, write_only=True).write()
    out.mkdir()
    (out / "policy.sha256").write_text("0\n")
    with pytest.raises(InputError, match="is of another policy"):
        Released(parts="heldout", out=out).write()
    monkeypatch.setattr(default, "RELEASED", tmp_path / "nowhere")
    with pytest.raises(InputError, match="the released policy is missing"):
        Released(parts="heldout", out=out).write()


def test_without_profiles_that_part_is_left_out(
    capsys: pytest.CaptureFixture[str], tiny: Sequence[object], tmp_path: Path
) -> None:
    for data in (tmp_path / "nowhere", None):
        with pytest.raises(InputError, match="nothing is done yet of profiles"):
            Released(parts="profiles", out=tmp_path / "out", data=data).write()
        assert "they are left out; --data names a folder of them" in capsys.readouterr().err
