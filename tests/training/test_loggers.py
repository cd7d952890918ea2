"""Loggers of services that are not installed here: modules with their documented interface stand in for them."""

import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

import placelab
from evaluation.commands import run_verbs
from graphs.formats.graph_file import save_graph
from graphs.foundation.errors import InputError
from tests.oracle.toys import random_graph
from tests.placers.stand_in import stand_in
from tests.training.test_run_folder import RECIPE, problems
from training.loggers import LOGGERS, check_access, check_loggers, flat, opened
from training.runs.train import train


class FakeWandb(ModuleType):
    """wandb.init(project=, name=, dir=, config=, id=, resume=) -> a run with id, log(data, step=) and finish()."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.__spec__ = ModuleSpec("wandb", None)
        self.inits: list[dict[str, Any]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.finished = 0
        self.is_logged_in = True

    def login(self) -> bool:
        return self.is_logged_in

    def init(self, *, project: str, name: str, dir: str, config: dict[str, Any], id: str | None, resume: str) -> Any:
        assert Path(dir).is_dir()
        self.inits.append({"project": project, "name": name, "config": config, "id": id, "resume": resume})
        return SimpleNamespace(id=id or "x1", log=self.log, finish=self.finish)

    def log(self, data: dict[str, float], step: int | None = None) -> None:
        assert step is not None
        self.logged.append((step, data))

    def finish(self) -> None:
        self.finished += 1


class FakeMlflow(ModuleType):
    """MLflow's fluent functions, of one active run."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.__spec__ = ModuleSpec("mlflow", None)
        self.experiments: list[str] = []
        self.started: list[tuple[str | None, str | None]] = []
        self.params: dict[str, Any] = {}
        self.metrics: list[tuple[int, dict[str, float]]] = []
        self.active = False

    def set_experiment(self, experiment_name: str) -> None:
        self.experiments.append(experiment_name)

    def start_run(self, run_id: str | None = None, run_name: str | None = None) -> Any:
        assert not self.active
        self.active = True
        self.started.append((run_id, run_name))
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id or "r1"))

    def log_params(self, params: dict[str, Any]) -> None:
        assert self.active
        self.params |= params

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        assert self.active
        assert step is not None
        self.metrics.append((step, metrics))

    def end_run(self) -> None:
        self.active = False


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> tuple[FakeWandb, FakeMlflow]:
    wandb, mlflow = FakeWandb(), FakeMlflow()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    return wandb, mlflow


def test_every_update_goes_to_every_logger(services: tuple[FakeWandb, FakeMlflow], tmp_path: Path) -> None:
    wandb, mlflow = services
    out = tmp_path / "mine"
    train(RECIPE, problems(), out=out, loggers=LOGGERS)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    numbers = [(each["update"], {k: v for k, v in each.items() if v is not None}) for each in lines]
    assert numbers
    assert wandb.logged == mlflow.metrics == numbers
    assert wandb.inits[0]["name"] == mlflow.started[0][1] == "mine"
    assert wandb.inits[0]["config"]["ppo.updates"] == RECIPE.ppo.updates
    assert mlflow.params["ppo.updates"] == str(RECIPE.ppo.updates)
    assert (wandb.finished, mlflow.active) == (1, False)
    assert list((out / "tensorboard").iterdir())


def test_fine_tuning_is_logged_as_a_run_of_its_own(services: tuple[FakeWandb, FakeMlflow], tmp_path: Path) -> None:
    wandb, mlflow = services
    run, graph = stand_in(tmp_path / "run"), tmp_path / "r.graph.json"
    save_graph(random_graph(12, 0), graph)
    for _ in range(2):
        placelab.finetune(run, str(graph), cluster="p100x2", groups=4, simulations=20, logger=LOGGERS)
    lines = [json.loads(line) for line in (run / "finetune" / "metrics.jsonl").read_text().splitlines()]
    best = [(each["simulations"], {"best_seconds": each["best_seconds"]}) for each in lines]
    assert best
    assert wandb.logged == mlflow.metrics == 2 * best
    assert [each["id"] for each in wandb.inits] == [None, None]
    assert mlflow.started == [(None, "finetune"), (None, "finetune")]
    assert wandb.inits[0]["config"]["simulations"] == 20
    assert len(list((run / "finetune" / "tensorboard").iterdir())) == 1


def test_a_user_that_is_not_logged_in_is_told_before_anything_is_captured(
    services: tuple[FakeWandb, FakeMlflow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services[0].is_logged_in = False
    monkeypatch.setattr("training.runs.problem_sets.ProblemSplit.problems", pytest.fail)
    monkeypatch.setattr("evaluation.commands.evaluate.problem_of", pytest.fail)
    sentence = "logger wandb: nobody is logged in; `wandb login`, or set WANDB_MODE=offline"
    with pytest.raises(InputError, match=sentence):
        placelab.train("gdp", logger=["wandb"], out=tmp_path / "new")
    with pytest.raises(InputError, match=sentence):
        placelab.finetune(stand_in(tmp_path / "run"), "rnnlm:layers=1", logger=["wandb"])
    assert not (tmp_path / "new").exists()
    monkeypatch.setenv("WANDB_MODE", "offline")
    check_access(["wandb"])


def test_a_run_that_is_resumed_goes_on_in_the_same_run_of_a_service(
    services: tuple[FakeWandb, FakeMlflow], tmp_path: Path
) -> None:
    wandb, mlflow = services
    for _ in range(2):
        with opened(("wandb", "mlflow"), tmp_path / "run", {"seed": 3}) as loggers:
            for logger in loggers:
                logger.write(1, {"loss": 0.5, "nothing": float("nan")})
    assert [each["id"] for each in wandb.inits] == [None, "x1"]
    assert mlflow.started == [(None, "run"), ("r1", None)]
    assert wandb.logged == mlflow.metrics == [(1, {"loss": 0.5})] * 2
    assert wandb.inits[0]["project"] == mlflow.experiments[0] == "placelab"


def test_a_service_that_refuses_is_one_sentence(
    services: tuple[FakeWandb, FakeMlflow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise RuntimeError("api_key not configured\nRun wandb login")

    monkeypatch.setattr(services[0], "init", refuse)
    with (
        pytest.raises(InputError, match="logger wandb: RuntimeError: api_key not configured"),
        opened(("mlflow", "wandb"), tmp_path, {}),
    ):
        pass
    assert not services[1].active, "what was opened before is closed"


def test_what_is_missing_is_said_before_anything_begins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("graphs.foundation.extras.find_spec", lambda name: None)
    for name in ("wandb", "mlflow"):
        sentence = f"logger {name} needs the package {name}: pip install 'placelab\\[{name}\\]'"
        with pytest.raises(InputError, match=sentence):
            run_verbs.train("gdp", logger=[name], out=tmp_path / "run")
        with pytest.raises(InputError, match=sentence):
            train(replace(RECIPE), problems(), out=tmp_path / "run", loggers=[name])
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="unknown logger 'wandbb'; did you mean 'wandb'"):
        check_loggers(["wandbb"])


def test_settings_have_dotted_names() -> None:
    assert flat({"seed": 3, "ppo": {"updates": 2, "inner": {"x": "y"}}}) == {
        "seed": 3, "ppo.updates": 2, "ppo.inner.x": "y",
    }  # fmt: skip
