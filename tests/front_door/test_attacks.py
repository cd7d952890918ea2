"""What somebody else's file may do when it is opened: give a result, or one sentence, and nothing more.

Code that a file names is not run, unless the user names the same function, or allows it.
"""

import contextlib
import gzip
import json
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil  # type: ignore[import-untyped]
import pytest
import tomli_w

import placelab
from envs.costs.costs import load_cost_model
from envs.files.plan_file import load_plan
from envs.simulation.simulator import simulate
from evaluation.benchmark.problem_file import INDEX, Benchmark
from evaluation.benchmark.submission import RECORDS, bench, pack
from evaluation.commands.load_placer import load_placer
from evaluation.records.journal import plans
from graphs.files.load import load_graph
from graphs.foundation import code_in_files, documents
from graphs.foundation.errors import InputError
from placelab.packages import HOME
from placers.learned.policy_meta import META
from tests.evaluation.benchmark import tiny
from tests.front_door.test_command_line import call
from tests.fuzz.mutations import JSON, TOML
from tests.fuzz.specimens import SPECIMENS, make_journal, make_policy, make_problem, make_whole_plan
from tests.fuzz.uses import GRAPH, problem, text
from training.recipe import load_recipe
from training.runs.run_folder import CONFIG, RunFolder

CODE = "evil.py:build"
RUNS = "runs none"
EVIL = """
from pathlib import Path

Path("ran").write_text("this code ran")


TRAIN = TEST = ("width=1",)


class Evil:
    name = "evil"

    def priorities(self, problem, op_seconds):
        return list(range(len(problem.graph)))


def build(**knobs):
    return Evil()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that came from somebody else: code, and files that name it. None of it has run when a test ends."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(code_in_files, "_named", set())
    (tmp_path / "evil.py").write_text(EVIL)
    text(GRAPH)(tmp_path / "step.graph.json")
    yield tmp_path
    assert not (tmp_path / "ran").exists()


def changed(path: Path, *keys: str | int, value: object = CODE) -> Path:
    """The file with another value somewhere."""
    content = place = json.loads(path.read_text())
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path.write_text(json.dumps(content))
    return path


def a_plan(folder: Path) -> Path:
    make_whole_plan(folder / "x.plan.json")
    return folder / "x.plan.json"


# ---- code that files name ------------------------------------------------------------------------------------


def unlike(content: Any) -> list[tuple[Any, Any]]:
    """Where texts stand in a document, by what holds each and the key there.

    Elements of a list are alike if they have the same fields and are of one category: the first is enough.
    """
    found: dict[object, tuple[Any, Any]] = {}
    left: list[tuple[tuple[object, ...], Any]] = [((), content)]
    while left:
        path, holder = left.pop()
        fields = tuple(holder) if isinstance(holder, dict) else ()
        where = *path, fields, holder.get("cat") if isinstance(holder, dict) else None
        for key in fields if isinstance(holder, dict) else range(len(holder)):
            place = *where, key if fields else "of a list"
            if isinstance(holder[key], str):
                found.setdefault(place, (holder, key))
            elif isinstance(holder[key], dict | list):
                left.append((place, holder[key]))
    return list(found.values())


@pytest.mark.parametrize("name", [name for name, each in SPECIMENS.items() if each.mutations in (JSON, TOML)])
def test_no_text_of_any_format_runs_as_code(name: str, folder: Path) -> None:
    """Whatever text stands where: the name of code in its place is text, or is refused."""
    specimen = SPECIMENS[name]
    path = folder / specimen.name
    specimen.made(path)
    fine = path.read_bytes()
    for number, line in enumerate(fine.splitlines() if path.suffix == ".jsonl" else [fine]):
        content: Any = tomllib.loads(line.decode()) if path.suffix == ".toml" else json.loads(line)
        for holder, key in unlike(content):
            held = holder[key]
            holder[key] = CODE
            raw = tomli_w.dumps(content).encode() if path.suffix == ".toml" else json.dumps(content).encode()
            lines = fine.splitlines()
            path.write_bytes(b"\n".join([*lines[:number], raw, *lines[number + 1 :], b""]) if lines[1:] else raw)
            with contextlib.suppress(InputError):
                specimen.used(path)
            assert not (folder / "ran").exists(), f"{key}: {CODE} ran"
            holder[key] = held
    path.write_bytes(fine)


@pytest.mark.parametrize("keys", [("plan", "order"), ("plan", "schedule", "order")])
def test_a_plan_runs_no_code(keys: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = changed(a_plan(folder), *keys)
    for command in (
        ["simulate", "step.graph.json", str(path), "--cluster", "p100x2"],
        ["show", "step.graph.json", "--draw", "x.svg", "--plan", str(path), "--cluster", "p100x2"],
        ["export", "step.graph.json", str(path), "--cluster", "p100x2", "--to", "schedule_csv"],
    ):
        code, out, err = call(capsys, *command)
        assert (code, out) == (2, "")
        assert f"x.plan.json: {keys[-2].replace('plan', 'order')}: it names code, '{CODE}'" in err
        assert "allow it with --allow-code" in err
    with pytest.raises(InputError, match=RUNS):
        load_plan(path, problem())


def test_code_of_a_plan_runs_if_it_is_allowed_and_what_runs_is_printed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = changed(a_plan(folder), "plan", "order")
    command = ["simulate", "step.graph.json", str(path), "--cluster", "p100x2", "--runtime", "ideal"]
    code, _, err = call(capsys, *command, "--allow-code")
    assert code == 0
    assert err.count(f"placelab: running build of {folder / 'evil.py'}, which a file that was opened names") == 1
    assert (folder / "ran").exists()
    (folder / "ran").unlink()
    assert call(capsys, *command)[0] == 2, "what was allowed once is not allowed again"


def test_code_that_the_user_names_may_stand_in_a_plan(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, found = changed(a_plan(folder), "plan", "order"), folder / "ran"
    assert call(capsys, "simulate", "step.graph.json", str(path), "--cluster", "p100x2", "--order", CODE)[0] == 0
    found.unlink()
    path.with_name("elsewhere").mkdir()
    (path.with_name("elsewhere") / "evil.py").write_text(EVIL)
    with pytest.raises(InputError, match=RUNS):  # another function of that name
        load_plan(changed(path, "plan", "order", value=f"elsewhere/{CODE}"), problem())


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A submission."""
    out = tmp_path_factory.mktemp("submitted") / "random"
    return bench(load_placer("random"), "all", out, budget=4, problems=tiny.FOLDER, quiet=True).folder


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("scheduled", [False, True])
def test_a_submission_runs_no_code(packed: bool, scheduled: bool, submitted: Path, folder: Path) -> None:
    theirs = folder / "theirs"
    shutil.copytree(submitted, theirs)
    header, *lines = (theirs / RECORDS).read_text().splitlines()
    entry = json.loads(lines[0])
    entry |= {"schedule": {"micro_batches": 2, "order": CODE}} if scheduled else {"order": CODE}
    (theirs / RECORDS).write_text("\n".join([header, json.dumps(entry), *lines[1:], ""]))
    if packed:
        pack(theirs)
    with pytest.raises(InputError, match=rf"{entry['record']['problem']}.*{RUNS}"):
        placelab.verify(theirs, problems=tiny.FOLDER)


@pytest.mark.parametrize("key", ["order", "cost_model", "graph", "cluster", "optimizer"])
def test_frozen_problems_run_no_code(key: str, folder: Path) -> None:
    shutil.copytree(tiny.FOLDER, folder / "frozen")
    changed(folder / "frozen" / INDEX, "problems", 0, key)
    theirs = Benchmark.load(folder / "frozen")
    with pytest.raises(InputError):
        theirs.problem(theirs.index.problems[0])


@pytest.mark.parametrize("scheduled", [False, True])
def test_a_journal_runs_no_code(scheduled: bool, folder: Path) -> None:
    make_journal(folder / "x.jsonl")
    header, *lines = (folder / "x.jsonl").read_text().splitlines()
    entry = json.loads(lines[-1])
    entry |= {"schedule": entry["schedule"] | {"order": CODE}} if scheduled else {"order": CODE}
    (folder / "x.jsonl").write_text(f"{header}\n{json.dumps(entry)}\n")
    (kept,) = plans(folder / "x.jsonl")
    assert kept.record.placer == "heft", "its records can be read all the same"
    with pytest.raises(InputError, match=RUNS):
        simulate(problem(), kept.plan(problem()))


def a_run(folder: Path, *changes: str) -> Path:
    """The run folder of an untrained policy."""
    run = folder / "run"
    run.mkdir()
    RunFolder(run).start(load_recipe("gdp", changes), "placelab train")
    make_policy(run / META)
    return run


@pytest.mark.parametrize("key", ["network", "placer"])
def test_a_policy_runs_no_code(key: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = a_run(folder)
    changed(run / META, key)
    for placer in ("run", "annealing:policy=run", "gdp:checkpoint=run", "run+finetuned"):
        code, _, err = call(capsys, "place", "step.graph.json", "--placer", placer, "--budget", "1")
        assert (code, CODE in err) == (2, True)
    assert call(capsys, "finetune", "run", "step.graph.json", "--simulations", "2")[0] == 2
    assert call(capsys, "evaluate", "run", "--placers", "random")[0] == 2


@pytest.mark.parametrize("key", ["test_graphs", "clusters", "test_clusters", "order", "graphs", "families", "suites"])
def test_the_recipe_of_a_run_that_is_evaluated_runs_no_code(
    key: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(folder)
    recipe = msgspec.to_builtins(load_recipe(str(run / CONFIG)))
    recipe["problems"][key] = CODE if key == "order" else [CODE]
    recipe["rules"].pop("memory_gib")
    (run / CONFIG).write_text(tomli_w.dumps(recipe))
    code, _, err = call(capsys, "evaluate", "run", "--placers", "random")
    assert (code, CODE in err) == (2, True)
    assert "it names code" in err or key == "suites"


@pytest.mark.parametrize("key", ["graph", "cluster", "cost_model", "order"])
def test_the_report_of_a_run_runs_no_code(key: str, folder: Path) -> None:
    run = a_run(folder)
    a_plan(folder).rename(run / "best.plan.json")
    make_problem(run / "best.problem.json")
    changed(run / "best.problem.json", key)
    page = placelab.report(run).read_text()
    assert "The plan cannot be drawn" in page


def test_the_journal_of_a_sweep_runs_no_code(folder: Path) -> None:
    pytest.importorskip("optuna")
    from optuna.distributions import CategoricalDistribution

    from training.runs.sweep import JOURNAL, Over, _next, _study

    study = _study(folder, "asked")
    study.ask({"ppo.reward": CategoricalDistribution([f"{CODE}:each=1", "log"])})
    with pytest.raises(InputError, match=f"{JOURNAL} is damaged: trial 0 is of other keys or ranges"):
        _next(study, [Over.parse("ppo.reward=log|sqrt")], 1, 0)


# ---- links ---------------------------------------------------------------------------------------------------


@pytest.fixture
def secret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file of the user's, elsewhere, which stays as it is."""
    path = tmp_path_factory.mktemp("home") / "secret"
    path.write_text("[mine]")
    yield path
    assert path.read_text() == "[mine]"


@pytest.mark.parametrize("name", ["report.html", "evaluation.json", META, "command.txt", "a/b.txt"])
def test_no_link_in_a_run_folder_leads_out_of_it(name: str, folder: Path, secret: Path) -> None:
    run = a_run(folder)
    (run / "a").mkdir()
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(secret)
    for verb in (
        lambda: placelab.report(run),
        lambda: placelab.report([run, folder / "other"]),
        lambda: placelab.evaluate(run, placers=["random"]),
        lambda: placelab.finetune(run, "step.graph.json", simulations=1),
        lambda: placelab.train("gdp", out=run, resume=True),
        lambda: placelab.place("step.graph.json", placer=f"gdp:checkpoint={run}"),
    ):
        shutil.rmtree(folder / "other", ignore_errors=True)
        shutil.copytree(run, folder / "other", symlinks=True)
        with pytest.raises(InputError, match=rf"is a link to {secret}, out of its folder"):
            verb()


def test_links_within_a_run_folder_and_to_it_are_followed(folder: Path) -> None:
    run = a_run(folder)
    (run / META).rename(run / "kept")
    (run / META).symlink_to("kept")
    (folder / "link").symlink_to(run)
    assert placelab.report("link").is_file()


@pytest.mark.parametrize("name", ["submission.toml", RECORDS, "plans"])
def test_no_link_in_a_submission_leads_out_of_it(name: str, submitted: Path, folder: Path, secret: Path) -> None:
    theirs = folder / "theirs"
    shutil.copytree(submitted, theirs)
    (theirs / name).unlink(missing_ok=True)
    (theirs / name).symlink_to(secret if name != "plans" else secret.parent)
    link = "out of its folder|holds no submission" if name == "submission.toml" else "out of its folder"
    with pytest.raises(InputError, match=link):
        placelab.verify(theirs, problems=tiny.FOLDER)
    with pytest.raises(InputError, match="out of its folder"):
        placelab.bench("random", out=theirs, suites="all", budget=4, problems=tiny.FOLDER, plans=True)


def test_locks_and_plans_are_not_written_through_links(folder: Path, secret: Path) -> None:
    (folder / ".x.jsonl.lock").symlink_to(secret)
    with pytest.raises(InputError, match=r"cannot write x\.jsonl"):
        placelab.compare("step.graph.json", placers=["random"], journal="x.jsonl")
    (folder / "plans").mkdir()
    (folder / "plans" / "step_p100.random.seed0.plan.json").symlink_to(secret)
    with pytest.raises(InputError, match="out of its folder"):
        placelab.compare("step.graph.json", placers=["random"], plans="plans")


def test_reports_beside_runs_are_not_written_through_links(folder: Path, secret: Path) -> None:
    shutil.copytree(a_run(folder), folder / "other")
    (folder / "comparison.html").symlink_to(secret)
    with pytest.raises(InputError, match="out of its folder"):
        placelab.report([folder / "run", folder / "other"])


# ---- what listens, what unpacks, what grows ------------------------------------------------------------------


def listening() -> set[str]:
    """Addresses at which processes of this one listen."""
    own = psutil.Process()
    found = [each for process in (own, *own.children(recursive=True)) for each in process.net_connections(kind="inet")]
    return {each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN}


def test_workers_of_this_machine_listen_to_it_alone() -> None:
    from graphs.foundation.dask_engine import on_dask

    before = listening()
    with on_dask(1, ()):
        assert listening() - before <= {"127.0.0.1"}


UNPACKED: dict[str, Callable[[Path], object]] = {
    "x.graph.json.gz": load_graph,
    "x.et": load_graph,
    "x.jsonl.gz": plans,
    "x.times.json.gz": lambda path: load_cost_model(f"recorded:file={path}").costs(problem()),
}


@pytest.mark.parametrize("name", UNPACKED)
def test_a_small_file_that_unpacks_to_much_is_refused(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MOST_BYTES", 2**22)
    (folder / name).write_bytes(gzip.compress(b" " * 2**23))
    with pytest.raises(InputError, match=r"more than 0.00390625 GiB"):
        UNPACKED[name](folder / name)


def test_nothing_that_is_opened_is_unpickled() -> None:
    """Pickles run code: only processes that placelab starts, or a scheduler that is named, send them."""
    root = Path(HOME)
    unpickles = re.compile(r"torch\.load\(|pickle\.loads?\(|Unpickler|allow_pickle=True|yaml|shelve|marshal|joblib")
    floors = ("graphs", "envs", "placers", "training", "evaluation")
    sources = [path for each in floors for path in (root / each).rglob("*.py")]
    found = {path.relative_to(root).as_posix() for path in sources if unpickles.search(path.read_text())}
    names_alone = {"graphs/capture/sources.py", "envs/orders/program.py", "evaluation/studies/published/mist.py"}
    assert found - names_alone == {"graphs/foundation/parcels.py"}
