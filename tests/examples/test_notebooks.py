"""The notebooks run from top to bottom and show what their text says; the output that is kept came from such a run."""

import json
import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import pytest

from tests.examples.notebooks import NOTEBOOKS, ROOT, code, executed

MILLISECONDS = re.compile(r"^(.*?) +(\d+\.\d+) ms$", re.MULTILINE)


def run(name: str, folder: Path, parameters: str = "") -> str:
    """All that a notebook writes to standard output."""
    outputs = [each for cell in code(executed(ROOT / "examples" / name, folder, parameters)) for each in cell.outputs]
    return "".join(each.text for each in outputs if each.output_type == "stream" and each.name == "stdout")


def check_own_policy(text: str, folder: Path) -> None:
    lines = (folder / "runs/mine/metrics.jsonl").read_text().splitlines()
    assert f"updates = {json.loads(lines[-1])['update']}\n" in (folder / "mine.toml").read_text()
    records = [line.split() for line in text.splitlines() if line.startswith("my_models:unseen@v100")]
    placers = {placer for _, placer, _, _ in records}
    assert placers > {"single_device", "metis", "heft", "human_expert", "annealing"}
    assert {placer.partition(":")[0] for placer in placers - {"single_device"}} >= {"sequential"}
    assert len(records) == 2 * len(placers)
    assert (folder / "runs/mine/report.html").is_file()
    assert "after 200 simulations" in text


@pytest.mark.slow
def test_own_model(tmp_path: Path) -> None:
    text = run("own_model.ipynb", tmp_path)
    seconds = {name: float(value) for name, value in MILLISECONDS.findall(text)}
    rivals = {"single_device", "data_parallel", "human_expert"}
    assert seconds.keys() == {*rivals, "the plan", "as issued"}
    assert all(seconds["the plan"] <= seconds[rival] for rival in rivals)
    assert text.startswith(f"{seconds['the plan']:.2f} ms a step; it fits\n")
    [largest] = re.findall(r"5 steps; the losses differ by (\S+) at most", text)
    assert float(largest) < 1e-5
    assert all((tmp_path / name).is_file() for name in ("mine.plan.json", "step.html"))


def test_own_policy_with_few_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a kernel."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for cell in code(nbformat.read(ROOT / "examples/own_policy.ipynb", 4)):
        source = "UPDATES = 4" if "parameters" in cell.metadata.get("tags", ()) else cell.source
        if source.startswith("%%writefile "):
            file, _, text = source.removeprefix("%%writefile ").partition("\n")
            Path(file).write_text(text)
        else:
            exec(compile(source, "own_policy.ipynb", "exec"), names)
    plt.close("all")
    check_own_policy(capsys.readouterr().out, tmp_path)


@pytest.mark.slow  # 150 updates
def test_own_policy_as_it_stands(tmp_path: Path) -> None:
    check_own_policy(run("own_policy.ipynb", tmp_path), tmp_path)


def test_there_are_notebooks() -> None:
    assert [path.name for path in NOTEBOOKS] == ["own_model.ipynb", "own_policy.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_output_that_is_kept_is_of_one_run_without_errors(path: Path) -> None:
    notebook: Any = nbformat.read(path, 4)
    nbformat.validate(notebook)
    cells = code(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(output.output_type != "error" for cell in cells for output in cell.outputs)
    assert all(cell.outputs for cell in cells if "print(" in cell.source)
    written = path.read_text()
    assert not re.search(r"/(tmp|home|root|Users)/", written)
    assert "execution" not in {key for cell in cells for key in cell.metadata}, "when cells ran says nothing"
    assert len(written) < 200_000
