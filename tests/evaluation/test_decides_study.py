"""The study of what decides: its variants, its statistics on made-up records, and a whole one of tiny graphs."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import training.problem_sets
from envs.simulation.simulator import Simulator
from evaluation.record import Record
from evaluation.statistics import Estimate, crossed
from evaluation.studies import problems as study_problems
from evaluation.studies.cheap_placers import FEW_CHEAP
from evaluation.studies.command import run
from evaluation.studies.decides import runs
from evaluation.studies.decides.__main__ import study
from evaluation.studies.decides.document import VariantFindings, save, verdict
from evaluation.studies.decides.runs import (
    BEST,
    CHEAP,
    GREEDY,
    PASSES,
    AfterPasses,
    VariantResult,
    held_out_problems,
    passes_name,
)  # fmt: skip
from evaluation.studies.decides.variants import BASE, VARIANTS, DecidesSize, base_recipe, recipe_of
from evaluation.studies.pieces import SavedJob, load_pieces
from evaluation.studies.problems import training_problems
from graphs.foundation.errors import InputError
from graphs.op_graph import OpGraph
from graphs.problem import Problem
from placers.learned.learned_placer import LearnedPlacer
from placers.learned.sequential import policy as sequential
from placers.learned.sequential.policy import SequentialPolicy
from tests.oracle.toys import random_graph, toy_cluster
from training.recipe import ProblemSet, Recipe, load_recipe

SMALL = DecidesSize(updates=2, imitation_updates=2, imitation_simulations=6, unseen_graphs=1, choices=4)


def record(problem: str, placer: str, seconds: float, *, seed: int = 0, fits: bool = True) -> Record:
    return Record(
        problem=problem, placer=placer, seed=seed, step_seconds=seconds, fits=fits, peak_bytes=(1.0,), simulations=0,
        search_seconds=0.1, lower_bound_seconds=1.0,
    )  # fmt: skip


def judged(variant: str, seed: int, one: float, other: float, *, fits: bool = True) -> VariantResult:
    """Of a graph of a family that was trained on, and of one of nmt; the best takes half of the greedy's time."""
    records = [
        record(problem, placer, seconds * factor, seed=seed, fits=fits)
        for placer, factor in ((GREEDY, 1.0), (BEST, 0.5))
        for problem, seconds in (("rnnlm:a@x", one), ("nmt:b@x", other))
    ]
    if variant == BASE:
        records += [record("rnnlm:a@x", passes_name(passes), one / passes, seed=seed) for passes in PASSES]
    return VariantResult(
        variant=variant, seed=seed, records=tuple(records), training_seconds=10.0 + seed, simulations=2000
    )


def made_up() -> VariantFindings:
    """The base takes 2 s and 4 s, GDP twice and four times as long, width 32 the same; of two seeds each."""
    cheap = [record("rnnlm:a@x", "metis", 1.0), record("nmt:b@x", "heft", 8.0)]
    cheap.append(record("rnnlm:a@x", "heft", 0.5, fits=False))
    pieces = [VariantResult(variant=CHEAP, seed=0, records=tuple(cheap))]
    for seed in range(2):
        pieces += [judged(BASE, seed, 2.0, 4.0), judged("gdp", seed, 4.0, 16.0), judged("width_32", seed, 2.0, 4.0)]
    return VariantFindings(DecidesSize(), pieces)


def test_a_variant_is_compared_with_the_base_of_its_seed_and_problem() -> None:
    results = made_up()
    gdp = results.over_base("gdp", GREEDY)
    assert gdp.value == pytest.approx(math.sqrt(2 * 4))
    assert (gdp.low, gdp.high) == pytest.approx((2, 4)), "either problem might be drawn twice"
    assert gdp.count == 4, "a ratio per seed and problem"
    assert results.over_base("width_32", BEST) == Estimate(1.0, 1.0, 1.0, 4)


def test_the_best_cheap_placer_is_the_fastest_that_fits() -> None:
    results = made_up()
    assert results.frame.problems == ("rnnlm:a@x", "nmt:b@x")
    assert results.cheap_seconds.tolist() == [1.0, 8.0]
    assert results.over_cheap(BASE, GREEDY, ["rnnlm"]).value == pytest.approx(2)
    assert results.over_cheap(BASE, GREEDY, ["nmt"]).value == pytest.approx(0.5)


def test_only_seeds_that_both_have_are_compared_and_only_plans_that_fit() -> None:
    some = made_up()
    more = VariantFindings(
        some.size, [*some.pieces, judged("gdp", 2, 1.0, 1.0), judged("sqrt", 0, 9.0, 9.0, fits=False)]
    )
    assert more.over_base("gdp", GREEDY).count == 4, "the base has no third seed yet"
    assert more.over_base("sqrt", GREEDY).count == 0
    assert (more.frame.fitting(("sqrt", GREEDY)), more.frame.fitting(("gdp", GREEDY))) == (0.0, 1.0)


@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=6), st.integers(1, 3))
def test_an_interval_over_seeds_and_problems_holds_the_mean_and_nothing_beyond_the_ratios(
    ratios: list[float], seeds: int
) -> None:
    found = crossed(np.tile(ratios, (seeds, 1)), resamples=200)
    assert found.value == pytest.approx(math.exp(np.log(ratios).mean()))
    assert min(ratios) - 1e-9 <= found.low <= found.value + 1e-9
    assert found.value - 1e-9 <= found.high <= max(ratios) + 1e-9


def test_an_interval_over_seeds_is_wider_where_they_disagree() -> None:
    alike, apart = crossed(np.full((3, 40), 1.1)), crossed(np.repeat([[0.9], [1.1], [1.3]], 40, axis=1))
    assert alike.high - alike.low < 1e-9
    assert apart.high - apart.low > 0.2, "forty problems of three seeds are not 120 ratios"


def test_an_interval_that_contains_one_is_no_difference() -> None:
    assert verdict(Estimate(1.1, 1.02, 1.2, 9)) == "worse"
    assert verdict(Estimate(0.9, 0.8, 0.98, 9)) == "better"
    assert verdict(Estimate(1.1, 0.99, 1.2, 9)) == "same"
    assert verdict(Estimate(1.01, 1.0004, 1.02, 9)) == "same", "printed as 1.000"


def test_the_document_says_who_is_slower_and_what_cannot_be_seen(tmp_path: Path) -> None:
    text = save(made_up(), tmp_path, "python -m study").read_text()
    assert "    python -m study\n" in text
    assert "| one-shot (GDP), no imitation | 2.828 [2.000, 4.000] | 2.828 [2.000, 4.000] | 2.828" in text
    assert "- Greedy, slower than the base: one-shot (GDP), no imitation (2.828)." in text
    assert "- Greedy, no difference that this study can see (the interval contains 1): width 32 (1.000)." in text
    assert "| width 32 | 1.000 | 1.000 | 1.000 [0.500, 2.000] | 100% | 10 s | 2,000 |" in text
    assert "faster than the base" not in text
    assert "on nmt, 50% less time than the best cheap placer of each graph (0.500)." in text
    assert "| 4 | 0.250 | 0.500 |" in text
    assert "Done: 3 variants, 2 seeds each." in text
    assert "- The base's own seeds are up to 0.0% apart, greedy" in text


def test_the_document_tells_how_far_the_base_depends_on_luck(tmp_path: Path) -> None:
    some = made_up()
    once = VariantFindings(some.size, [piece for piece in some.pieces if piece.seed == 0])
    assert math.isnan(once.seeds_apart(BASE, GREEDY))
    assert "a single seed of the base" in save(once, tmp_path, "").read_text()
    thrice = VariantFindings(some.size, [*some.pieces, judged(BASE, 2, 2.0 * 1.21, 4.0)])
    assert thrice.seeds_apart(BASE, GREEDY) == pytest.approx(1.1), "a problem of two takes 21% longer"
    assert "up to 10.0% apart, greedy, and 10.0%, best of 16." in save(thrice, tmp_path, "").read_text()


def test_the_document_tells_of_variants_with_fewer_seeds(tmp_path: Path) -> None:
    some = made_up()
    fewer = VariantFindings(some.size, [piece for piece in some.pieces if (piece.variant, piece.seed) != ("gdp", 1)])
    assert "2 seeds each, but fewer of one-shot (GDP), no imitation (1)." in save(fewer, tmp_path, "").read_text()
    alone = VariantFindings(some.size, [piece for piece in some.pieces if piece.variant in (CHEAP, BASE)])
    assert save(alone, tmp_path, "").read_text(), "with nothing to compare yet"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_is_one_change_of_the_base_that_a_run_folder_can_hold(variant: str, tmp_path: Path) -> None:
    recipe, base = recipe_of(variant, DecidesSize()), base_recipe(DecidesSize())
    sections = [name for name in ("problems", "ppo", "imitation") if getattr(recipe, name) != getattr(base, name)]
    sections += ["network"] * ((recipe.placer, recipe.network) != (base.placer, base.network))
    # GDP cannot imitate; nothing is beside no PPO
    expected = {BASE: 0, "gdp": 2, "gdp_alike": 2, "gdp_segments": 2, "imitation_alone": 2}
    assert len(sections) == expected.get(variant, 1)
    (tmp_path / "config.toml").write_text(recipe.to_toml())
    assert load_recipe(str(tmp_path / "config.toml")) == recipe


def test_all_variants_differ() -> None:
    recipes = [recipe_of(name, DecidesSize()) for name in VARIANTS]
    assert len({msgspec.json.encode(recipe) for recipe in recipes}) == len(recipes)


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Random graphs in place of captured ones; the specs that were asked for."""
    asked: list[str] = []

    def load_graph(spec: str) -> OpGraph:
        asked.append(spec)
        return random_graph(20 + len(spec) % 7, len(spec))

    def forget() -> None:
        study_problems.captured.cache_clear()
        study_problems.tied.cache_clear()

    monkeypatch.setattr(runs, "FAMILIES", ("rnnlm", "layered"))
    monkeypatch.setattr(study_problems, "load_graph", load_graph)
    monkeypatch.setattr(training.problem_sets, "load_graph", load_graph)
    forget()
    yield asked
    forget()


def of_two_families(variant: str) -> ProblemSet:
    return msgspec.structs.replace(recipe_of(variant, DecidesSize()).problems, families=("rnnlm", "layered"))


@pytest.mark.parametrize("variant", [BASE, "not_randomised", "groups_16"])
def test_training_problems_are_those_of_the_recipe(variant: str, captured: list[str]) -> None:
    chosen = of_two_families(variant)
    expected, found = training.problem_sets.load_problems(chosen, seed=3), training_problems(chosen, 3)
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert one.name == other.name
        assert one.cluster.devices == other.cluster.devices
        assert np.array_equal(one.cluster.bandwidth, other.cluster.bandwidth)
        assert np.array_equal(one.graph.units, other.graph.units)


def test_every_model_is_captured_once(captured: list[str]) -> None:
    for variant in (BASE, "groups_16"):
        for seed in range(2):
            training_problems(of_two_families(variant), seed)
    held_out_problems(2)
    held_out_problems(2)
    assert len(captured) == len(set(captured)) > 0
    assert sum(spec.startswith("nmt:") for spec in captured) == 2


def test_the_passes_end_where_the_greedy_placement_does() -> None:
    problem = Problem(random_graph(12, 1), toy_cluster(3, memory=1e4))
    policy = SequentialPolicy.new("sequential:width=8,heads=2,hidden=8", 0)
    greedy = LearnedPlacer(policy, "sequential").place(problem, budget=1).plan
    after = AfterPasses(policy, sequential.PASSES).place(problem)
    assert after.plan.devices == greedy.devices
    assert (after.simulations, after.placer) == (0, f"after {sequential.PASSES}")
    assert Simulator(problem).run(after.plan.placement).fits


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four ops in place of models, and a network of a few numbers."""

    def problems(count: int, first: int) -> list[Problem]:
        return [Problem(random_graph(4 + i, first + i), toy_cluster(2, memory=1e4)) for i in range(count)]

    def small(variant: str, size: DecidesSize) -> Recipe:
        recipe = recipe_of(variant, size)
        network = "sequential:width=8,heads=2,hidden=8" if recipe.placer == "sequential" else recipe.network
        return msgspec.structs.replace(recipe, network=network)

    monkeypatch.setattr(runs, "recipe_of", small)
    monkeypatch.setattr(runs, "training_problems", lambda _, seed: problems(2, seed))
    monkeypatch.setattr(runs, "held_out_problems", lambda count: problems(count + 1, 50))


@pytest.mark.usefixtures("tiny")
def test_a_study_goes_on_where_it_was_stopped_and_writes_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    do = SavedJob.do

    def noted(piece: SavedJob) -> None:
        done.append(piece.name)
        if len(done) == 4:
            raise KeyboardInterrupt
        do(piece)

    monkeypatch.setattr(SavedJob, "do", noted)
    names = "gdp,no_imitation,imitation_alone"
    with pytest.raises(KeyboardInterrupt):
        study(variants=names, seeds=1, out=tmp_path, settings=SMALL)
    assert len(load_pieces(tmp_path, VariantResult)) == 3
    path = study(variants=names, seeds=1, out=tmp_path, settings=SMALL)
    assert done == [
        "cheap-0", "base-0", "no_imitation-0", "imitation_alone-0", "imitation_alone-0", "gdp-0",
    ], "each once, in the order of how telling they are, but for the one that was stopped"  # fmt: skip

    pieces = {piece.variant: piece for piece in load_pieces(tmp_path, VariantResult)}
    assert {r.placer for r in pieces[CHEAP].records} == set(FEW_CHEAP)
    assert {r.placer for r in pieces[BASE].records} == {GREEDY, BEST, *map(passes_name, PASSES)}
    used = {r.placer: r.simulations for r in pieces["gdp"].records}
    assert used == {GREEDY: 0, BEST: SMALL.choices}
    by_ppo = SMALL.updates * 2 * 16
    assert pieces["no_imitation"].simulations == pieces["gdp"].simulations == by_ppo
    assert pieces[BASE].simulations == by_ppo + 2 * SMALL.imitation_simulations
    assert pieces["imitation_alone"].simulations == 2 * 16 + 2 * SMALL.imitation_simulations
    assert all((tmp_path / "runs" / f"{name}-0" / "config.toml").is_file() for name in (BASE, "gdp"))

    text = path.read_text()
    assert not re.search(r"\bnan\b|\binf\b", text)
    assert 0 < (tmp_path / "decides_ratios.png").stat().st_size < 100_000
    again = study(variants=names, seeds=1, out=tmp_path, document=tmp_path / "there", write_only=True)
    assert again.read_text() == text


def test_what_is_asked_is_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'entropy_0'"):
        study(variants="entropy0", out=tmp_path)
    with pytest.raises(InputError, match="at least one seed"):
        study(seeds=0, out=tmp_path)
    with pytest.raises(InputError, match="holds no study"):
        study(out=tmp_path, write_only=True)
    (tmp_path / "settings.json").write_bytes(msgspec.json.encode(DecidesSize()))
    with pytest.raises(InputError, match="not done yet"):
        study(out=tmp_path, write_only=True)


@pytest.mark.usefixtures("tiny")
def test_a_folder_is_of_one_size(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_bytes(msgspec.json.encode(DecidesSize(updates=7)))
    with pytest.raises(InputError, match="another size"):
        study(out=tmp_path, settings=SMALL)


def test_the_command_line_says_what_is_wrong_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["decides", "--write-only", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        run(study, "decides", "What decides.")
    assert stop.value.code == 2
    assert capsys.readouterr() == ("", f"{tmp_path} holds no study (settings.json is missing)\n")
