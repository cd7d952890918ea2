"""The study of trainings: its recipes, its ratios on made-up records, and a whole one of tiny graphs."""

import math
import pickle
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest

from evaluation.record import Record
from evaluation.studies import problems as study_problems
from evaluation.studies.cheap_placers import CHEAP
from evaluation.studies.command import run
from evaluation.studies.frame import Against, Frame
from evaluation.studies.pieces import pieces_done
from evaluation.studies.released import parts as released_parts
from evaluation.studies.released.parts import BEST, BEST_CHEAP, FEW, GREEDY, Entry, Target, part_of
from evaluation.studies.trainings import __main__ as trainings
from evaluation.studies.trainings import document as trainings_document
from evaluation.studies.trainings import runs as trainings_runs
from evaluation.studies.trainings.__main__ import study
from evaluation.studies.trainings.document import SPECIAL_NAMES, ZERO_SHOT, SeedFindings, load_findings, save, within
from evaluation.studies.trainings.runs import (
    CLUSTERS,
    Training,
    TrainingsSize,
    is_released,
    of_seed,
    released,
    special_names,
    special_places,
    specialised,
    specialist,
)  # fmt: skip
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers import default
from placers.learned.settings import Imitation, Ppo
from tests.oracle.toys import random_graph, toy_cluster
from tests.placers.stand_in import release
from training.recipe import Recipe, load_recipe
from training.train import train

ONE, OTHER = "ptb:cell=1@two", "nmt:cell=2@two"
TINY = Recipe(
    placer="sequential",
    network="sequential:width=8,sage_layers=1,heads=2,hidden=8",
    ppo=Ppo(updates=2, problems_per_update=2, samples=2, epochs=1),
    imitation=Imitation(simulations=4, updates=2, weight=0.1),
)
SETTINGS = TrainingsSize(TINY, 1)
EXPERT = Target("less than the expert", "heldout", Entry(GREEDY), Entry("human_expert"), 0.6, may_equal=True)


def record(problem: str, placer: str, seconds: float, *, fits: bool = True) -> Record:
    return Record(
        problem=problem, placer=placer, seed=0, step_seconds=seconds, fits=fits, peak_bytes=(1.0,), simulations=1,
        search_seconds=0.1, lower_bound_seconds=0.5,
    )  # fmt: skip


def cheap() -> list[Record]:
    return [record(problem, placer, 4.0) for problem in (ONE, OTHER) for placer in CHEAP]


def own(one: float, other: float) -> list[Record]:
    """The greedy placements' step times; the best of 16 take half."""
    pairs = [(ONE, one), (OTHER, other)]
    greedy = [record(problem, GREEDY, seconds) for problem, seconds in pairs]
    return [*greedy, *(record(problem, BEST, seconds / 2) for problem, seconds in pairs)]


def against_specialist(*by_seed: tuple[Sequence[float], Sequence[float]], fits: bool = True) -> Frame:
    """On a cluster's held-out graphs: the first step times of the released policy and of each seed's specialist."""
    names, found = special_names(CLUSTERS[0]), []
    for seed, (ours, theirs) in enumerate(by_seed):
        own = [record(name, who, s, fits=fits) for name, s in zip(names, ours, strict=False) for who in (GREEDY, BEST)]
        placed = zip(names, theirs, strict=False)
        special = [record(name, who, s) for name, s in placed for who in SPECIAL_NAMES.values()]
        found += [msgspec.structs.replace(each, seed=seed) for each in (*own, *special)]
    return part_of({FEW: found}, range(len(by_seed)))


def special(*by_seed: tuple[Sequence[float], Sequence[float]], fits: bool = True) -> Against:
    """The released policy over the specialists, greedy."""
    part = against_specialist(*by_seed, fits=fits)
    return SeedFindings({}, {}, {CLUSTERS[0]: part}, len(by_seed)).special(CLUSTERS[0], GREEDY)


def three_seeds() -> SeedFindings:
    """Over the expert, greedy: 0.5, 0.7071 and 1; the last has placed but one problem."""
    seeds = {0: own(2.0, 2.0), 1: own(2.0, 4.0), 2: [record(ONE, GREEDY, 4.0)]}
    parts = {seed: {"heldout": part_of({FEW: [*found, *cheap()]})} for seed, found in seeds.items()}
    return SeedFindings(parts, {"heldout": part_of({FEW: cheap()})}, {CLUSTERS[0]: part_of({})}, 1)


def test_a_row_has_a_ratio_of_each_seed_and_their_geometric_mean() -> None:
    row = three_seeds().target(EXPERT)
    assert {seed: against.ratio.value for seed, against in row.ratios.items()} == pytest.approx(
        {0: 0.5, 1: math.sqrt(0.5), 2: 1.0}
    )
    assert row.mean.value == pytest.approx(math.sqrt(0.5))
    assert (row.mean.low, row.mean.high) == pytest.approx((0.5, 1.0)), "of three seeds, from the best to the worst"
    assert row.apart == pytest.approx(2.0)
    best = three_seeds().ratio("heldout", Entry(BEST), BEST_CHEAP)
    assert best.mean.value == pytest.approx(math.sqrt(0.25 * math.sqrt(0.125)))
    assert list(best.ratios) == [0, 1], "the third has not placed the best of 16"
    nothing = three_seeds().ratio("clusters", Entry(GREEDY), BEST_CHEAP)
    assert nothing.ratios == {}
    assert math.isnan(nothing.apart)


def test_seeds_meet_a_target_or_not() -> None:
    results = three_seeds()
    assert results.met(EXPERT) == {"met": 1, "not met": 2}
    assert results.met(replace(EXPERT, most=0.5)) == {"met": 1, "not met": 2}, "equal will do"
    assert results.met(replace(EXPERT, most=0.5, may_equal=False)) == {"not met": 3}
    assert results.met(replace(EXPERT, part="newfamilies")) == {}


def test_the_targets_are_those_without_search_or_annealing() -> None:
    assert {target.entry.placer for target in ZERO_SHOT} == {GREEDY, BEST}
    assert {target.rival.placer for target in ZERO_SHOT} <= {"human_expert", "heft", BEST_CHEAP.placer}
    assert {target.part for target in ZERO_SHOT} == {"heldout", "newfamilies", "profiles"}


def test_the_released_policy_over_specialists_is_a_mean_over_problems_and_seeds() -> None:
    one = special(([2.0, 3.0], [1.0, 6.0]))
    assert one.ratio.value == pytest.approx(1.0)
    assert (one.ratio.low, one.ratio.high) == pytest.approx((0.5, 2.0))
    assert (one.wins, one.losses, one.problems) == (1, 1, 2)
    two = special(([2.0, 3.0], [1.0, 6.0]), ([2.0, 3.0], [4.0, 6.0]))
    assert two.ratio.value == pytest.approx(0.5**0.5)
    assert two.ratio.low == pytest.approx(0.5)
    assert two.ratio.high > 1
    assert (two.wins, two.losses, two.problems, two.ratio.count) == (3, 1, 4, 4)
    assert special().problems == 0


def test_within_three_per_cent() -> None:
    def verdict(ours: float, *, fits: bool = True, also: float = 1.0) -> str:
        return within(special(([ours, also], [1.0, 1.0]), fits=fits))

    assert verdict(1.03, also=1.03) == "yes"
    assert verdict(1.10) == "no", "a mean of 1.049"
    assert verdict(0.5, fits=False) == "-"
    some = special(([1.0], [1.0]))
    assert within(Against(some.ratio, 0, 0, 2, unfit=1)) == "where it fits"


def test_what_is_missing_is_named() -> None:
    missing = three_seeds().missing()
    assert "seed 2, heldout (2)" in missing, "the best of 16 on both"
    assert not any(said.startswith(("seed 0", "seed 1", "heft")) for said in missing)
    count = len(special_names(CLUSTERS[0]))
    assert f"{CLUSTERS[0]}, seed 0, specialists ({count})" in missing
    empty = SeedFindings({0: {}}, {}, {CLUSTERS[0]: against_specialist(([1.0], []))}, 1)
    assert "seed 0" in empty.missing()
    assert not empty.is_empty


def test_a_specialist_has_one_cluster_and_its_share_of_updates() -> None:
    whole = load_recipe("released")
    some = specialised(whole, "cpu_gpu:gpus=2", whole.ppo.updates // 4)
    problems = some.problems
    assert problems.clusters == problems.test_clusters == ("cpu_gpu:gpus=2",)
    assert (problems.randomised, problems.variants, problems.forward, problems.measured) == (0, 0, 0.0, 0.0)
    assert (problems.families, problems.groups) == (whole.problems.families, whole.problems.groups)
    assert whole.problems.world.problems > 0 == problems.world.problems, "random problems are on other clusters"
    assert some.ppo == msgspec.structs.replace(whole.ppo, updates=whole.ppo.updates // 4)
    assert some.imitation.updates == round(whole.imitation.updates / 4)
    assert some.imitation.simulations == whole.imitation.simulations
    assert some.network == whole.network


def test_held_out_graphs_are_placed_on_the_specialists_clusters_under_the_names_of_their_problems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [name for cluster in CLUSTERS for name in special_names(cluster)]
    assert len(names) == len(set(names)) == 4 * len(special_names(CLUSTERS[0]))
    assert {name.rpartition("@")[2] for name in names} == set(CLUSTERS)
    assert (
        max(sum(name.startswith(f"{family}:") for name in special_names(CLUSTERS[0])) for family in ("ptb", "nmt")) <= 4
    )
    monkeypatch.setattr(study_problems, "tied", lambda spec, groups: replace(random_graph(4, 0), name=spec))
    for problems in special_places(*CLUSTERS).values():
        assert all(make().name == name for name, make in problems.items())


def problems_of(count: int, first: int) -> list[Problem]:
    return [Problem(random_graph(4 + i, first + i), toy_cluster(2, memory=1e4)) for i in range(count)]


def given(problem: Problem) -> Problem:
    return problem


def tied(spec: str, groups: int) -> OpGraph:
    return replace(random_graph(5, len(spec)), name=spec)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """A tiny recipe whose seed 0 is released, two problems of each suite, and two cheap placers; trainings noted."""
    trained: list[str] = []
    do = Training.do

    def noted(training: Training) -> None:
        trained.append(training.name)
        if len(trained) == 2:
            raise KeyboardInterrupt
        do(training)

    def suite(name: str, groups: int) -> dict[str, partial[Problem]]:
        return {problem.name: partial(given, problem) for problem in problems_of(2, 10 + len(name))}

    train(TINY, problems_of(2, 0), out=tmp_path / "policy", seed=0)
    monkeypatch.setattr(default, "RELEASED", tmp_path / "policy")
    monkeypatch.setattr(trainings, "load_recipe", lambda _: TINY)
    monkeypatch.setattr(trainings_runs, "training_problems", lambda chosen, seed: problems_of(2, len(chosen.clusters)))
    monkeypatch.setattr(released_parts, "suite_problems", suite)
    monkeypatch.setattr(trainings_runs, "heldout", lambda: (("ptb:a=1", "x"), ("nmt:a=1", "x"), ("ptb:a=1", "y")))
    monkeypatch.setattr(study_problems, "tied", tied)
    for module in (released_parts, trainings_document, trainings_runs):
        monkeypatch.setattr(module, "CHEAP", ("heft", "human_expert"))
    monkeypatch.setattr(Training, "do", noted)
    return trained


def test_the_released_policy_is_a_seed_only_of_the_same_recipe_and_seed(tiny: list[str], tmp_path: Path) -> None:
    assert is_released(TINY, 0)
    assert not is_released(TINY, 1)
    longer = msgspec.structs.replace(TINY, ppo=msgspec.structs.replace(TINY.ppo, updates=3))
    assert not is_released(longer, 0)
    assert of_seed(SETTINGS, 0, tmp_path).folder == default.RELEASED
    assert of_seed(SETTINGS, 0, tmp_path).placers == {GREEDY: FEW, BEST: FEW}
    assert of_seed(TrainingsSize(longer, 1), 0, tmp_path).folder == tmp_path / "runs" / "seed-0"
    other = of_seed(SETTINGS, 1, tmp_path)
    spec = f"sequential:checkpoint={tmp_path / 'runs' / 'seed-1'}"
    assert other.placers == {f"{spec},samples=1": FEW, spec: FEW}
    assert not other.is_done


def test_a_released_policy_that_was_stopped_is_no_seed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    release(monkeypatch, tmp_path)
    assert not is_released(released().recipe, 3), "of the same recipe and seed, after no update"


def test_a_study_goes_on_where_it_was_stopped_and_writes_its_document(tiny: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    go = partial(study, seeds=2, specialist_updates=1, out=out)
    with pytest.raises(KeyboardInterrupt):
        go()
    assert tiny == ["seed-1", "p100-devices-2-0"], "seed 0 is the released policy"
    first = study(seeds=2, out=out, write_only=True).read_text()
    assert "Nothing of it is done" not in first.partition("keep up")[0]
    assert "p100:devices=4, seed 0, specialists (2)" in first
    text = go().read_text()
    assert tiny == ["seed-1", *(specialist(SETTINGS, CLUSTERS[i], 0, out).name for i in (0, 0, 1, 2, 3))]
    assert "Not done yet, or failed (problems): profiles." in text
    assert "Seed 0 is the released policy." in text
    assert "1 updates of imitation and 1 updates of PPO on its cluster" in text
    assert "2 updates of imitation and 2 updates of PPO in all" in text
    assert "--seeds 2 --specialist-seeds 1 --specialist-updates 1" in text
    assert re.search(r"\| `p100:devices=8` \| yes \| 1 \| [\d.]+ .*\d/2 \| (yes|no) \|", text)
    assert "| `cpu_gpu:gpus=2` | no | 1 |" in text, "the recipe does not train on it"
    assert not re.search(r"\bnan\b|\binf\b", text)
    go()
    assert len(tiny) == 6, "nothing was left to do"
    assert study(seeds=2, out=out, document=tmp_path / "doc", write_only=True).read_text() == text
    placed = load_findings(out, SETTINGS, 2, 1)
    assert len(placed.specialists[CLUSTERS[3]].problems) == 2
    assert {name: len(part.problems) for name, part in placed.seeds[1].items()} == {
        "heldout": 2, "newfamilies": 2, "clusters": 2,
    }  # fmt: skip


def test_one_part_alone_leaves_the_other_undone(tiny: list[str], tmp_path: Path) -> None:
    text = study(parts="seeds", seeds=1, out=tmp_path / "out").read_text()
    assert tiny == [], "the released policy alone"
    assert text.count("Nothing of it is done.") == 1
    assert all(f"{cluster}, seed 0, specialists (2)" in text for cluster in CLUSTERS)


def test_a_folder_is_of_one_recipe_size_and_policy(tiny: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(InputError, match="holds no study"):
        study(out=out, write_only=True)
    study(parts="seeds", seeds=1, specialist_updates=1, out=out)
    with pytest.raises(InputError, match="of another size"):
        study(parts="seeds", seeds=1, specialist_updates=2, out=out)
    kept = out / "settings.json"
    whole = kept.read_bytes()
    kept.write_text('{"updates": 3}')
    with pytest.raises(InputError, match="of another study than this one"):
        study(out=out, write_only=True)
    kept.write_bytes(whole)
    (out / "policy.sha256").write_text("0\n")
    with pytest.raises(InputError, match="is of another policy"):
        study(out=out, write_only=True)


def test_what_is_asked_is_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown part of the study 'seed'; did you mean 'seeds'"):
        study(parts="seed", out=tmp_path)
    with pytest.raises(InputError, match="one seed of each"):
        study(specialist_seeds=0, out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_document_of_seeds_that_are_not_all_placed(tiny: list[str], tmp_path: Path) -> None:
    text = save(three_seeds(), SETTINGS, tmp_path, tmp_path, "python -m study").read_text()
    assert "    python -m study\n" in text
    expert = "| greedy, held-out graphs: 16% less time than the human expert |"
    assert f"{expert} 0.500 | 0.707 | 1.000 | 0.707 [0.500, 1.000] | 100.0% | ≤ 0.84 | 2 of 3 |" in text
    best = "| greedy, families kept aside: faster than the best cheap placer of each graph |"
    assert f"{best} - | - | - | - | - | < 1.00 | - |" in text
    assert "| best of 16, other clusters, over HEFT | - | - | - | - | - | - | - |" in text
    assert "Problems: 2 of `heldout`." in text


def test_what_is_trained_already_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Training, "is_done", property(lambda training: training.folder.exists()))
    monkeypatch.setattr(Training, "do", lambda training: training.folder.mkdir())
    (tmp_path / "b").mkdir()
    three = [Training(name, tmp_path / name, TINY, 0) for name in "abc"]
    assert [training.name for training in pieces_done(three, 1)] == ["b", "a", "c"]
    assert [training.name for training in pieces_done(three, 2)] == ["a", "b", "c"], "nothing was left to do"


def test_trainings_can_be_sent_to_other_processes(tmp_path: Path) -> None:
    training = specialist(SETTINGS, CLUSTERS[0], 1, tmp_path)
    assert pickle.loads(pickle.dumps((Training.do, training))) == (Training.do, training)


def test_a_command_that_is_stopped_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped() -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.argv", ["trainings"])
    with pytest.raises(SystemExit) as stop:
        run(stopped, "trainings", "Stops at once.")
    assert stop.value.code == 130
    assert capsys.readouterr() == ("", "interrupted; the same command resumes\n")
