"""The documentation builds, its commands are commands, its examples run, and what is generated is up to date."""

import functools
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import placelab
from envs.gym.make_env import environments
from envs.gym.observations import FEATURES
from evaluation.commands.arguments import as_declared
from evaluation.commands.load_placer import load_placer
from evaluation.explorer.server import ExplorerServer
from graphs.files.load import load_cluster, load_graph
from placelab.verbs import VERBS
from tests.front_door import command_line_page
from tests.front_door.pages import PAGES, ROOT, blocks, commands
from training.recipe import load_recipe

DOCS = ROOT / "docs"
SITE = (ROOT / "mkdocs.yml").read_text()
COMMANDS = {f"{page.stem}: {line}": line for page in PAGES for line in commands(page)}
FILES = (".json", ".toml", ".py", ".json.gz")


def test_every_page_is_in_the_contents() -> None:
    assert set(re.findall(r"^ +- (\S+\.md)$", SITE, re.MULTILINE)) == {
        page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")
    }


def test_links_lead_to_files() -> None:
    linked = {
        page: re.findall(r"\]\((?!\w+:)([^)#\s]+)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
        for page in DOCS.rglob("*.md")
    }
    assert sum(map(len, linked.values())) > 100
    assert {
        str(page): each for page, links in linked.items() for each in links if not (page.parent / each).exists()
    } == {}


@pytest.mark.slow  # the workflows build the site
def test_links_lead_somewhere_and_the_site_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = pytest.importorskip("mkdocs.commands.build", reason="mkdocs is not installed").build
    from mkdocs.config import load_config

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(tmp_path)))  # a warning ends it
    home = (tmp_path / "index.html").read_text()
    assert 'href="how-to/my-model/"' in home
    assert (tmp_path / "evaluation/studies/plan_kinds/plan_kinds.png").is_file()
    assert 'href="../evaluation/studies/plan_kinds/plan_kinds/"' in (tmp_path / "results/index.html").read_text()
    assert 'id="placelab.place"' in (tmp_path / "reference/python/index.html").read_text()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_commands_have_these_verbs_flags_and_names(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    def recorded(verb: Callable[..., object]) -> Callable[..., None]:
        @functools.wraps(verb)
        def record(*args: object, **keywords: object) -> None:
            given.update(keywords)

        return record

    for name, verb in VERBS.items():
        monkeypatch.setitem(VERBS, name, recorded(verb))
    monkeypatch.setattr(sys, "argv", shlex.split(command, comments=True))
    with pytest.raises(SystemExit) as stop:
        placelab.main()
    assert stop.value.code == 0
    for cluster in specs(given, "cluster"):
        if not cluster.endswith(FILES) and ".py:" not in cluster:
            load_cluster(cluster)
    for placer in specs(given, "placer"):
        if not placer.startswith(("runs/", "expert:")) and ".py:" not in placer:
            load_placer(placer)


def specs(given: dict[str, Any], what: str) -> list[str]:
    """The specs that a command line gives under `--cluster` and `--clusters`, or likewise for placers."""
    several = ",".join(given.get(f"{what}s") or ())
    found = as_declared(f"{what}s", several, "Sequence[PlacerLike]") if several else []
    return [str(each) for each in [given.get(what), *found] if each]


def test_the_page_of_the_command_line_says_what_the_verbs_say() -> None:
    assert command_line_page.DOCUMENT.read_text() == command_line_page.document(), (
        "python -m tests.front_door.command_line_page writes the page"
    )


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of a reader, from which Python imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    return tmp_path


def written(page: Path) -> dict[str, str]:
    """The blocks of a page that name a file, written into the current folder; by file name."""
    named = re.compile(r"# (\S+\.(?:py|toml))\n")
    matches = ((named.match(each), each) for each in blocks(page, "python") + blocks(page, "toml"))
    found = {match[1]: each for match, each in matches if match is not None}
    for name, text in found.items():
        Path(name).write_text(text)
    return found


def test_the_model_of_ones_own_is_captured_placed_and_trained(reader: Path) -> None:
    files = written(DOCS / "how-to/my-model.md")
    assert placelab.capture("my_model.py:model", out="mine.graph.json").ops_by_phase.keys() >= {"forward", "backward"}
    placed = placelab.place("mine.graph.json", cluster="v100x4", placer="heft", out="mine.plan.json")
    assert placed.timeline.step_seconds > 0
    loop = re.sub(r'"cuda:\d"', '"cpu"', files["train.py"]).replace("(5, 32, 128)", "(1, 2, 16)")
    names: dict[str, Any] = {}
    exec(compile(loop, "train.py", "exec"), names)
    assert bool(torch.isfinite(names["loss"]))


def run_all(page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the commands of a page in the current folder, one after the other."""
    for command in commands(page):
        monkeypatch.setattr(sys, "argv", shlex.split(command, comments=True))
        with pytest.raises(SystemExit) as stop:
            placelab.main()
        assert stop.value.code == 0, capsys.readouterr().err


def test_a_plan_is_opened_as_the_page_says(
    reader: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ExplorerServer, "serve_forever", stopped)
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    run_all(DOCS / "how-to/explore.md", monkeypatch, capsys)
    said = capsys.readouterr()
    assert "placelab: the page is at http://127.0.0.1:" in said.err
    assert said.out.startswith("This plan takes")
    assert not any(reader.iterdir())


def test_a_step_is_seen_in_all_the_ways_that_the_page_names(
    reader: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = DOCS / "how-to/read-a-step.md"
    run_all(page, monkeypatch, capsys)
    assert {path.name for path in reader.iterdir()} == {"mine.plan.json", "expert.plan.json", "step.html", "step.json"}
    capsys.readouterr()
    [example] = blocks(page, "python")
    exec(compile(example, page.name, "exec"), {})
    first, *others = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"step 0\.\d{4} s, busy \[.*\]", first)
    assert len(others) >= 3


def test_extensions_run_as_the_page_says(
    reader: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = DOCS / "how-to/extend.md"
    files = written(page)
    for each in ("linear_policy.py", "linear_policy.toml", "plain_reinforce.py", "plain_reinforce.toml"):
        shutil.copy(ROOT / "examples" / each, reader)
    run_all(page, monkeypatch, capsys)
    own = [name for name in files if name.startswith("my_")]
    assert len(own) == 7
    assert all(f"{name}:build" in page.read_text() for name in own)
    [environment] = [block for block in blocks(page, "python") if "gymnasium" in block]
    names: dict[str, Any] = {}
    exec(compile(environment, page.name, "exec"), names)
    assert isinstance(names["reward"], float)
    assert len(load_graph("towers.py:build")) > 0


def test_a_researchers_own_problem_placer_and_environment_run(reader: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(compile(written(DOCS / "reference/python.md")["research.py"], "research.py", "exec"), names)
    divided, together, placement = capsys.readouterr().out.split(maxsplit=2)
    assert float(divided) > float(together) > 0, "two products that follow one another gain nothing from two devices"
    assert placement.strip() == "[0 0]"
    assert isinstance(names["reward"], float)


def test_environments_run_as_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    page, names = DOCS / "environments.md", dict[str, Any]()
    for example in blocks(page, "python"):
        exec(compile(example, page.name, "exec"), names)
    assert re.match(r"[\d.]+ ms a step, \[", capsys.readouterr().out)
    assert names["ended"]
    assert names["many"].num_envs == 8
    assert names["losses"][-1] < 0.5 * names["losses"][0]
    assert set(names["table"].placer) == {"metis", "heft", "single_device"}
    for each in environments():
        assert f"| `{each}` |" in page.read_text()
    for feature in FEATURES:
        assert f"| `{feature}` |" in page.read_text()


def test_the_recipe_of_ones_own_is_one(reader: Path) -> None:
    written(DOCS / "how-to/train.md")
    assert load_recipe("mine.toml", ()).problems.groups == (32,)


def test_the_first_plan_prints_its_step(capsys: pytest.CaptureFixture[str]) -> None:
    [example] = blocks(DOCS / "start.md", "python")
    exec(compile(example, "start.md", "exec"), {})
    assert re.match(r"0\.\d{3} s a step, \[.*\] s busy per device\n", capsys.readouterr().out)
