"""What is packed for a repository is the same plans, in less room; what is damaged is refused."""

import gzip
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.benchmark.packed import PackedEntry, load_packed, save_packed
from evaluation.benchmark.problem_file import Benchmark
from evaluation.benchmark.submission import PACKED, RECORDS, SubmissionFolder, bench, pack
from evaluation.benchmark.verification import verify
from evaluation.records.journal import JournalEntry
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from tests.evaluation.benchmark import tiny

BENCHMARK = Benchmark.load(tiny.FOLDER)
ENTRY = msgspec.json.decode(
    b'{"record": {"problem": "a@b", "placer": "heft", "seed": 0, "step_seconds": 1.0, "fits": true, '
    b'"peak_bytes": [1.0], "simulations": 1, "search_seconds": 0.0, "lower_bound_seconds": 1.0}, '
    b'"graph": "", "cluster": "", "devices": [0]}',
    type=JournalEntry,
)


@pytest.fixture(scope="module")
def heft(tmp_path_factory: pytest.TempPathFactory) -> SubmissionFolder:
    """Plans with an order of their own."""
    out = tmp_path_factory.mktemp("heft") / "heft"
    return bench(by_name.build("placers", "heft"), "all", out, problems=tiny.FOLDER, quiet=True)


@given(st.lists(st.sampled_from([-1.5, 0.0, 0.25, 7.0, 1e-9]), min_size=1, max_size=12))
def test_an_order_keeps_what_is_smaller_and_what_is_equal(numbers: list[float]) -> None:
    entry = _of_order(tuple(numbers))
    ranks = PackedEntry.of(entry).unpacked().order
    assert not isinstance(ranks, str)
    for one in range(len(numbers)):
        for other in range(len(numbers)):
            assert (numbers[one] < numbers[other]) == (ranks[one] < ranks[other])
    assert sorted(set(ranks)) == list(range(len(set(numbers))))
    assert PackedEntry.of(_of_order(ranks)).unpacked().order == ranks, "packed again, nothing changes"


def test_a_packed_submission_is_timed_as_before_and_takes_less_room(heft: SubmissionFolder, tmp_path: Path) -> None:
    assert any(not isinstance(entry.order, str) for entry in heft.entries)
    save_packed(tmp_path / PACKED, heft.entries)
    again = load_packed(tmp_path / PACKED)
    verify([SubmissionFolder(tmp_path, heft.about, tuple(again))], BENCHMARK)
    assert [each.record for each in again] == [each.record for each in heft.entries]
    assert [each.made for each in again] == [each.made for each in heft.entries]
    only_compressed = gzip.compress((heft.folder / RECORDS).read_bytes(), mtime=0)
    assert (tmp_path / PACKED).stat().st_size < len(only_compressed)
    save_packed(tmp_path / "again.gz", again)
    assert (tmp_path / "again.gz").read_bytes() == (tmp_path / PACKED).read_bytes(), "equal plans are equal files"


def test_a_journal_that_was_only_compressed_is_read_and_can_be_packed(heft: SubmissionFolder, tmp_path: Path) -> None:
    (tmp_path / "submission.toml").write_bytes((heft.folder / "submission.toml").read_bytes())
    (tmp_path / PACKED).write_bytes(gzip.compress((heft.folder / RECORDS).read_bytes()))
    assert SubmissionFolder.load(tmp_path).entries == heft.entries
    before = (tmp_path / PACKED).stat().st_size
    assert pack(tmp_path).stat().st_size < before
    verify([SubmissionFolder.load(tmp_path)], BENCHMARK)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b'{"schema": "placelab.packed", "version": 9}\n', "written as version 9, this placelab reads version 1"),
        (b'{"schema": "placelab.plan", "version": 1}\n', "is damaged: .*checkout"),
        (b"", "is damaged"),
    ],
)
def test_what_is_no_packed_file_is_refused(line: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / PACKED
    path.write_bytes(gzip.compress(line))
    with pytest.raises(InputError, match=sentence):
        load_packed(path)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("sequence", (0, 1, -1), "does not name each op once"),
        ("sequence", (5, 1, 1), "does not name each op once"),
        ("ties", (0,), "ties are none"),
        ("ties", (99_999,), "ties are none"),
    ],
)
def test_a_damaged_order_is_refused(
    key: str, value: tuple[int, ...], sentence: str, heft: SubmissionFolder, tmp_path: Path
) -> None:
    save_packed(tmp_path / PACKED, heft.entries[:1])
    header, line = gzip.decompress((tmp_path / PACKED).read_bytes()).splitlines()
    changed = msgspec.structs.replace(msgspec.json.decode(line, type=PackedEntry), **{key: value})
    (tmp_path / PACKED).write_bytes(gzip.compress(header + b"\n" + msgspec.json.encode(changed) + b"\n"))
    with pytest.raises(InputError, match=f"is damaged: .*{sentence}"):
        load_packed(tmp_path / PACKED)


def test_bytes_that_are_no_archive_are_refused(heft: SubmissionFolder, tmp_path: Path) -> None:
    save_packed(tmp_path / PACKED, heft.entries)
    whole = (tmp_path / PACKED).read_bytes()
    for damaged in (whole[: len(whole) // 2], b"records"):
        (tmp_path / PACKED).write_bytes(damaged)
        with pytest.raises(InputError, match="is damaged"):
            load_packed(tmp_path / PACKED)
    with pytest.raises(InputError, match="does not exist"):
        load_packed(tmp_path / "nothing.gz")


def _of_order(numbers: tuple[float, ...]) -> JournalEntry:
    return msgspec.structs.replace(ENTRY, order=numbers)
