"""docs/clusters.md says what the catalogue says, and its files are clusters."""

import re
from pathlib import Path

import pytest

from graphs.files.load import load_cluster
from tests.graphs.catalogue_tables import DOCUMENT, document

TEXT = DOCUMENT.read_text()
FILES = [each for each in re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL) if "placelab.rates" not in each]
SPECS = re.findall(r"--cluster (mixed:\S+)", TEXT)


def test_its_tables_are_the_catalogue() -> None:
    assert document() == TEXT, "python -m tests.graphs.catalogue_tables writes them"
    assert TEXT.count("\n| `") > 40


@pytest.mark.parametrize("file", FILES)
def test_its_files_are_clusters(file: str, tmp_path: Path) -> None:
    (tmp_path / "home.cluster.toml").write_text(file)
    assert len(load_cluster(tmp_path / "home.cluster.toml")) in (2, 4)


def test_its_spec_is_the_cluster_of_its_first_file(tmp_path: Path) -> None:
    (tmp_path / "home.cluster.toml").write_text(FILES[0])
    [spec] = SPECS
    assert load_cluster(spec).fingerprint == load_cluster(tmp_path / "home.cluster.toml").fingerprint
