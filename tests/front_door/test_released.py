"""The released policy at the front door: `place` begins with it, `compare` names it, `evaluate` judges it."""

import inspect
import json
from pathlib import Path

import pytest

import placelab
from evaluation.commands import command_line
from graphs.files import suites
from placelab.verbs import VERBS
from placers import default
from tests.placers.stand_in import release, stand_in
from training.recipe import ProblemSet

GRAPH = "rnnlm:layers=1,steps=2,hidden=8,batch=2,vocabulary=16"
LAYERED = "layered:seed=0"


@pytest.fixture(autouse=True)
def released(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A stand-in, with a recipe of small problems."""
    monkeypatch.setitem(suites.SUITES, "small", lambda: ((GRAPH, "p100:devices=2"), (GRAPH, "v100:devices=3")))
    return release(monkeypatch, tmp_path, ProblemSet(families=("layered",), test_clusters=("p100x3",), test_groups=8))


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    """The records that a command prints."""
    with pytest.raises(SystemExit) as stop:
        command_line.run(VERBS, "about", [*arguments, "--json"])
    assert stop.value.code == 0
    printed = json.loads(capsys.readouterr().out)
    return printed if isinstance(printed, list) else [printed]


def test_a_search_for_a_placement_begins_with_the_policy(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["place", GRAPH, "--groups", "8", "--cluster", "v100x4", "--plans", "placement"]
    placed = call(capsys, *words, "--budget", "30")[0]
    assert (placed["placer"], placed["simulations"]) == ("annealing:policy=default", 30)
    assert placed["problem"] == f"{GRAPH}@v100:devices=4"
    greedy = call(capsys, *words, "--budget", "0")[0]
    alone = call(capsys, "place", GRAPH, "--budget", "1", "--groups", "8", "--cluster", "v100x4", "--placer", "default")
    assert greedy["simulations"] == alone[0]["simulations"] == 0
    assert greedy["placement"] == alone[0]["placement"]


def test_without_the_policy_place_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(default, "RELEASED", tmp_path / "none")
    with pytest.raises(placelab.InputError, match=r"`placelab train released --out .*none`"):
        placelab.place(GRAPH, plans="placement")
    assert placelab.place(GRAPH, groups=8, placer="heft").timeline.fits


def test_compare_takes_it_alone_before_a_search_and_fine_tuned(capsys: pytest.CaptureFixture[str]) -> None:
    specs = ["default", "default:samples=1", "annealing:policy=default", "default+finetuned", "gdp+finetuned"]
    arguments = ("--clusters", "p100x3", "--groups", "8", "--budget", "20")
    records = call(capsys, "compare", GRAPH, *arguments, "--placers", ",".join(specs))
    assert [record["placer"] for record in records] == specs
    assert {record["problem"] for record in records} == {f"{GRAPH}@p100:devices=3"}
    again = call(capsys, "compare", GRAPH, *arguments, "--placers", ",".join(str(r["placer"]) for r in records))
    assert [r["step_seconds"] for r in again] == [r["step_seconds"] for r in records]


def test_evaluate_judges_it_on_the_test_split_of_its_recipe_and_writes_nothing(
    released: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "training.runs.problem_sets.split", lambda families, which: [LAYERED] if which == "test" else []
    )
    before = sorted(released.iterdir())
    records = call(capsys, "evaluate", "--placers", "heft,metis:seeds=2", "--budget", "4", "--seeds", "2")
    assert [(r["placer"], r["seed"]) for r in records] == [
        (placer, seed) for placer in ("default", "default:samples=1", "heft", "metis:seeds=2") for seed in (0, 1)
    ]
    assert {r["problem"] for r in records} == {f"{LAYERED}@p100:devices=3"}
    assert sorted(released.iterdir()) == before


def test_evaluate_compares_a_run_with_all_classical_placers_on_a_suite(tmp_path: Path) -> None:
    run, journal = stand_in(tmp_path / "run"), tmp_path / "journal.jsonl"
    found = placelab.evaluate(run, suite="small", groups=6, budget=2, seeds=1, journal=journal)
    assert found.problems == (f"{GRAPH}@p100:devices=2", f"{GRAPH}@v100:devices=3")
    assert set(found.placers) > {f"sequential:checkpoint={run}", "annealing", "metis", "metis:default=true"}
    assert len(journal.read_text().splitlines()) >= len(found.records)
    assert not (run / "evaluation.json").exists(), "only the run's own test split is its evaluation"


def test_evaluate_and_compare_give_the_same_records_of_the_same_suite(capsys: pytest.CaptureFixture[str]) -> None:
    shared = ("--suite", "small", "--groups", "6", "--budget", "5", "--seeds", "1", "--workers", "1")
    judged = call(capsys, "evaluate", "default", *shared, "--placers", "heft")
    ideal = ("--runtime", "ideal", "--cost-model", "roofline")  # for which the policy was trained
    compared = call(capsys, "compare", *shared, *ideal, "--placers", "default,default:samples=1,heft")
    timed = {"search_seconds": 0.0}
    assert [record | timed for record in judged] == [record | timed for record in compared]
    assert judged[0].keys() == compared[0].keys()


def test_evaluate_has_the_policy_as_a_word_or_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert next(iter(inspect.signature(placelab.evaluate).parameters)) == "policy"
    arguments = ("--suite", "small", "--groups", "6", "--budget", "1", "--seeds", "1", "--placers", "heft")
    by_word, by_flag = (
        call(capsys, "evaluate", *policy, *arguments) for policy in (("default",), ("--policy=default",))
    )
    assert [record["placer"] for record in by_word] == [record["placer"] for record in by_flag]
