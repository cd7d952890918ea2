"""What pages tell a reader to type runs, in their order, and what they name exists."""

import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import placelab
from tests.front_door.pages import PAGES, ROOT, blocks, commands

DOCS = ROOT / "docs"
TEXTS = {page: page.read_text() for page in PAGES if "archive" not in page.parts}  # whose commands run at older commits
FEW = 4  # simulations
RUN = ("start", "papers", "plans", "replacement", "splits", "how-to/my-model", "how-to/precision", "how-to/reproduce",
       "how-to/unequal-cards", "how-to/will-it-fit", "clusters")  # fmt: skip
LEFT_OUT = {  # by what it has, why a command of these pages is not run here
    "layer_gnmt_training.json": "a workload that others publish",
    "train placeto": "takes long; `make demo` trains a policy",
    "profile": "says something on a quiet machine alone, as what follows from it does",
    "calibrate": "likewise",
    "mine.cluster.toml": "likewise",
    "rates.toml": "its rates are for two devices of a name, and the page's cluster has four",
}


def test_modules_that_pages_run_exist() -> None:
    """But for those of an earlier commit: `git checkout COMMIT && python -m ...`."""
    named = {module for text in TEXTS.values() for module in re.findall(r"(?<!&& )python -m ([a-z_][\w.]*\w)", text)}
    assert len(named) > 15
    found = {module: find_spec(module) for module in named}
    assert [module for module, spec in found.items() if spec is None] == []
    packages = [module for module, spec in found.items() if spec and spec.submodule_search_locations]
    assert [module for module in packages if find_spec(f"{module}.__main__") is None] == []


def test_targets_of_make_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for text in TEXTS.values() for target in re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)}
    assert len(named) > 8
    assert named - targets == set()


def test_pages_of_results_name_the_command_that_makes_them() -> None:
    """Of studies that are settled with the commit at which it runs."""
    settled = [page for page in (DOCS / "results/archive").glob("*.md") if page.stem != "index"]
    studies = list((ROOT / "evaluation/studies").glob("*/*.md"))
    assert min(len(settled), len(studies)) > 5
    assert [page.name for page in settled if not re.search("git checkout [0-9a-f]{7,} && ", page.read_text())] == []
    assert [page.name for page in studies if "python -m evaluation.studies." not in page.read_text()] == []


def test_what_is_left_out_is_on_a_page() -> None:
    lines = [line for name in RUN for line in commands(DOCS / f"{name}.md")]
    assert [each for each in LEFT_OUT if not any(each in line for line in lines)] == []


def quick(line: str) -> list[str]:
    """The words of a command, with few simulations unless seconds limit them."""
    words = shlex.split(line if ":seconds=" in line else re.sub(r" --budget \d+", "", line), comments=True)
    is_quick = "--budget" in words or words[1] not in ("place", "compare", "fits")
    return words if is_quick else [*words, "--budget", str(FEW)]


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_the_commands_of_a_page_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With few simulations; the model is that of docs/how-to/my-model.md, where a page has no other."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_model", raising=False)
    for page in (DOCS / "how-to/my-model.md", DOCS / f"{name}.md"):
        for block in blocks(page, "python") + blocks(page, "toml"):
            if named := re.match(r"# (\S+\.(?:py|toml))\b", block):
                Path(named[1]).write_text(block)
    lines = commands(DOCS / f"{name}.md")
    before = [line for line in commands(DOCS / "how-to/my-model.md")[:3] if "mine.graph.json" in " ".join(lines)]
    for line in [*before, *lines]:
        if not any(each in line for each in LEFT_OUT):
            monkeypatch.setattr(sys, "argv", quick(line))
            with pytest.raises(SystemExit) as stop:
                placelab.main()
            assert stop.value.code == 0, (line, capsys.readouterr().err[-2000:])
