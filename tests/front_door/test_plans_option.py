"""`placelab place --plans`: a placement, or the best plan of any kind."""

import json
from pathlib import Path

import pytest

import placelab
from evaluation.commands import command_line
from graphs.foundation.errors import InputError
from placelab.verbs import VERBS
from tests.placers.stand_in import release

GRAPH = "transformer:layers=2,width=32,heads=2,sequence=8,batch=8,vocabulary=64"


@pytest.fixture(autouse=True)
def released(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """What `place` begins with by default."""
    release(monkeypatch, tmp_path_factory.mktemp("package"))


def test_plans_of_any_kind_are_the_default_and_a_device_for_each_op_is_a_flag() -> None:
    every = placelab.place(GRAPH, cluster="rtx3090_rtx3060", budget=40)
    assert every.result.placer == "planner:placements=40"
    placed = placelab.place(GRAPH, cluster="rtx3090_rtx3060", plans="placement", budget=40)
    assert every.timeline.step_seconds <= placed.timeline.step_seconds
    assert placed.result.placer == "annealing:policy=default"
    assert placed.plan.is_placement
    same = placelab.place(GRAPH, cluster="rtx3090_rtx3060", placer="annealing:policy=default", budget=40)
    assert same.plan == placed.plan


def test_the_planner_takes_part_in_comparisons_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    placers = "planner,single_device,data_parallel"
    words = ["compare", GRAPH, "--clusters", "v100_a100", "--placers", placers, "--budget", "40", "--json"]
    with pytest.raises(SystemExit) as ended:
        command_line.run(VERBS, "about", words)
    assert ended.value.code == 0
    found = {record["placer"]: record for record in json.loads(capsys.readouterr().out)}
    assert found["planner"]["step_seconds"] == min(record["step_seconds"] for record in found.values())


def test_a_placer_decides_its_own_kind_of_plans() -> None:
    with pytest.raises(InputError, match="`plans='placement'` is about plans without a placer; leave it out"):
        placelab.place(GRAPH, placer="heft", plans="placement")
    with pytest.raises(InputError, match="unknown plans 'al'; did you mean 'all'"):
        placelab.place(GRAPH, plans="al")  # type: ignore[arg-type]


def test_micro_batches_are_the_planners() -> None:
    placed = placelab.place(GRAPH, cluster="p100x2", micro_batches=4, budget=20)
    assert placed.result.placer == "planner:micro_batches=4,placements=20"


def test_a_forward_pass_gets_a_plan_of_any_kind() -> None:
    """Divided ops of a stage have no gradients to sum up."""
    placed = placelab.place("rnnlm:layers=1,steps=2", cluster="a100x2", training=False, budget=30)
    assert placed.timeline.fits


DEVICE = '[[devices]]\nname = "%s"\nkind = "gpu"\nflops_per_second = 1e12\nbytes_per_second = 1e11\nmemory = "8GiB"\n'
APART = [
    ('[[servers]]\ndevices = ["rtx3090", "rtx3060"]\n', "nothing says what joins 'rtx3090' to the other devices"),
    ('[[servers]]\ndevices = ["rtx3090"]\n[[servers]]\ndevices = ["rtx3060"]\n', "nothing joins its 2 servers"),
    (
        'schema = "placelab.cluster"\nversion = 1\nname = "apart"\n' + DEVICE % "a" + DEVICE % "b",
        "links.bandwidth is missing, and no pair gives the bandwidth from 'a' to 'b'",
    ),
]


@pytest.mark.parametrize(("text", "said"), APART)
def test_devices_that_nothing_joins_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "apart.cluster.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        placelab.place(GRAPH, cluster=str(path), budget=20)


def test_micro_batches_that_do_not_divide_the_batch_are_refused() -> None:
    with pytest.raises(InputError, match="has 8 samples, which cannot be divided into 3 micro-batches"):
        placelab.place(GRAPH, cluster="p100x2", micro_batches=3, budget=20)
