"""A package that is not installed is asked for in one sentence, before any work, with the line that installs it."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from graphs.foundation.errors import InputError
from graphs.foundation.extras import EXTRAS, check_installed, is_installed, missing

ROOT = Path(__file__).parents[2]
WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.startswith({packages}):
            raise ModuleNotFoundError(f"No module named {{name}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def test_every_extra_is_one_of_the_project_and_installs_the_package() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    distributions = {"google.protobuf": "protobuf"}
    for package, extra in EXTRAS.items():
        names = {re.split(r"[><=]", each)[0] for each in declared[extra]}
        assert distributions.get(package, package).replace("_", "-") in names
    [everything] = declared["all"]
    assert set(re.findall(r"\w+", everything)) - {"placelab"} >= {*EXTRAS.values()} - {"mlflow", "wandb"}


def test_a_package_that_is_missing_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert not is_installed("onnx")
    with pytest.raises(InputError, match=r"^m\.onnx needs the package onnx: pip install 'placelab\[onnx\]'$"):
        check_installed("onnx", "m.onnx")
    assert "pip install 'placelab[exact]'" in str(missing("ortools", "placer exact"))
    assert is_installed("numpy")
    assert not is_installed("no_such_package.inside")


COMMANDS = """
import placelab
from graphs.foundation.errors import InputError
from tests.oracle.toys import four_ops_two_devices

graph = four_ops_two_devices().problem.graph
placelab.place(graph, cluster="v100:devices=2", placer="heft")
from training.loggers import DEFAULT_LOGGERS
assert DEFAULT_LOGGERS == ()

def refused(act, extra):
    try:
        act()
    except InputError as error:
        assert f"pip install 'placelab[{extra}]'" in str(error), error
    else:
        raise AssertionError(extra)

def chakra():
    import graphs.formats.chakra

def sb3():
    import training.sb3

def network():
    from placers.learned.gdp.networks import graphsage_transformer

refused(lambda: placelab.show(graph, draw="graph.png"), "charts")
refused(lambda: placelab.report("run"), "charts")
refused(lambda: placelab.train("gdp", out="run", logger=["tensorboard"]), "tensorboard")
refused(chakra, "chakra")
refused(sb3, "sb3")
refused(network, "pyg")
"""


def test_what_needs_no_extra_works_without_all_of_them_and_the_rest_says_which(tmp_path: Path) -> None:
    script = WITHOUT.format(packages=tuple(EXTRAS)) + COMMANDS
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
