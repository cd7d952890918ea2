"""From training to report, on a small scale: what `make demo` does."""

import json
from pathlib import Path

import pytest

import placelab
from evaluation.records.run_files import load_evaluation
from graphs.files.load import load_cluster, load_graph
from graphs.problem import Problem
from placers.learned.settings import Ppo
from training.recipe import Recipe
from training.runs.train import train

NETWORKS = {
    "gdp": "graphsage_transformer:width=16,sage_layers=1,transformer_layers=1,heads=2",
    "sequential": "sequential:width=16,sage_layers=1,heads=2,hidden=16",
}
SEEN = "rnnlm:layers=1,steps=2,hidden=8,batch=2,vocabulary=16"
UNSEEN = "rnnlm:layers=2,steps=3,hidden=8,batch=2,vocabulary=16"


@pytest.fixture(scope="module")
def problems() -> dict[str, list[Problem]]:
    cluster = load_cluster("p100:devices=2")
    return {
        which: [Problem(load_graph(spec, groups=6), cluster)] for which, spec in (("train", SEEN), ("test", UNSEEN))
    }


@pytest.fixture(scope="module", params=NETWORKS)
def placer(request: pytest.FixtureRequest) -> str:
    """Each learned placer that the trainer takes."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def run(placer: str, problems: dict[str, list[Problem]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "small"
    train(
        Recipe(placer=placer, network=NETWORKS[placer], ppo=Ppo(updates=3, samples=4)),
        problems["train"],
        out=folder,
        seed=2,
    )
    return folder


def test_a_trained_folder_is_a_placer(placer: str, run: Path) -> None:
    placed = placelab.place(SEEN, groups=6, placer=str(run), budget=4)
    assert placed.result.placer == f"{placer}:checkpoint={run}"
    assert placed.result.simulations == 4


def test_evaluation_is_on_unseen_graphs_with_every_placer_at_one_budget(
    placer: str, run: Path, problems: dict[str, list[Problem]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def load(_: object, which: str, **_options: object) -> list[Problem]:
        asked.append(which)
        return problems[which]

    monkeypatch.setattr("evaluation.commands.evaluate.load_problems", load)
    comparison = placelab.evaluate(run, budget=5, seeds=2)
    assert asked == ["test"]
    kept = load_evaluation(run / "evaluation.json")
    assert kept.records == comparison.records
    assert kept.notes.learned == f"{placer}:checkpoint={run}"
    assert {r.placer.partition(":")[0] for r in kept.records} > {placer, "metis", "human_expert", "heft", "annealing"}
    assert all(record.simulations <= 5 for record in kept.records)
    greedy = [r for r in kept.records if r.placer.endswith("samples=1")]
    tried = 1 if placer == "sequential" else 0  # whether its plan fits
    assert [(r.seed, r.simulations) for r in greedy] == [(0, tried), (1, tried)]


def test_finetuning_and_the_report(run: Path) -> None:
    comparison = placelab.finetune(run, UNSEEN, cluster="p100:devices=2", simulations=60, groups=6)
    tuned = next(r for r in comparison.records if r.placer.endswith("+finetuned"))
    assert 16 < tuned.simulations <= 60
    lines = [json.loads(line) for line in (run / "finetune" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1] == {"simulations": tuned.simulations, "best_seconds": tuned.step_seconds}
    assert placelab.place(UNSEEN, groups=6, placer=str(run / "finetune"), budget=1).timeline.fits
    best = placelab.simulate(UNSEEN, run / "best.plan.json", groups=6)
    assert best.timeline.step_seconds == tuned.step_seconds
    page = placelab.report(run).read_text()
    assert page.count("<svg") >= 4
    assert "+finetuned" in page
