"""What a release says of itself: one version everywhere, a citation, and a changelog with that version on top."""

import datetime
import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
HEADING = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", re.MULTILINE)
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")  # of Keep a Changelog, in its order
FIELDS = {  # of the Citation File Format 1.2.0 that we use, and their types
    "cff-version": str, "message": str, "type": str, "title": str, "authors": list, "version": str,
    "date-released": str, "license": str, "keywords": list,
}  # fmt: skip


def test_the_citation_has_the_required_fields_and_no_unknown_ones() -> None:
    assert {"cff-version", "message", "title", "authors"} <= CITATION.keys() <= FIELDS.keys()
    assert all(isinstance(CITATION[field], kind) and CITATION[field] for field, kind in FIELDS.items())
    assert CITATION["cff-version"] == "1.2.0"
    assert CITATION["type"] == "software"
    assert all({"name"} <= author.keys() or {"family-names"} <= author.keys() for author in CITATION["authors"])
    assert all(isinstance(keyword, str) for keyword in CITATION["keywords"])


def test_citation_and_changelog_are_of_this_version() -> None:
    (version, date), *_ = HEADING.findall((ROOT / "CHANGELOG.md").read_text())
    assert version == CITATION["version"] == PROJECT["version"]
    assert date == CITATION["date-released"]
    assert CITATION["license"] == PROJECT["license"]


def test_the_changelog_has_versions_from_new_to_old_with_the_usual_sections() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    found, unreleased = HEADING.findall(text), text.count("\n## [Unreleased]\n")
    assert unreleased <= 1
    assert len(found) + unreleased == len(re.findall(r"^## ", text, re.MULTILINE))
    assert text.find("## [Unreleased]") < text.index("## [0.")
    versions = [tuple(map(int, version.split("."))) for version, _ in found]
    assert versions == sorted(set(versions), reverse=True)
    dates = [datetime.date.fromisoformat(date) for _, date in found]
    assert dates == sorted(dates, reverse=True)
    first, *others = HEADING.split(text)
    for section in [*others[2::3], *([first] if unreleased else [])]:
        kinds = [kind for kind in re.findall(r"^### (.*)$", section, re.MULTILINE) if not kind.startswith("Files of ")]
        assert kinds
        assert set(kinds) <= set(KINDS)
        assert len(kinds) == len(set(kinds))
