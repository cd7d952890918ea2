"""Runtimes: named ways of running plans, and what a spec changes of one."""

import pytest

import placelab
from envs.simulation.simulator import simulate
from evaluation.commands.flag_values import OTHERS
from graphs.foundation.errors import InputError
from graphs.host import host_of
from graphs.runtime import FIFO, IDEAL, LONGEST_PATH, PROGRAM, RUNTIMES, runtime_of


def test_a_name_says_what_differs_from_its_kind() -> None:
    assert runtime_of("ideal") == IDEAL
    assert (IDEAL.order, IDEAL.host) == (LONGEST_PATH, None)
    assert runtime_of("ideal:order=longest-path").name == "ideal"
    assert runtime_of("ideal:order=fifo") == runtime_of("fifo")
    assert IDEAL.with_knobs(order=PROGRAM, host="30us").name == "ideal:order=program,host=30us"
    assert IDEAL.with_knobs(order=PROGRAM).with_knobs(order=LONGEST_PATH).name == "ideal"
    assert IDEAL.with_knobs(host="30us").host == host_of("30us")
    assert runtime_of("fifo").with_knobs(host="none") == RUNTIMES[FIFO]


def test_every_name_is_that_of_its_runtime() -> None:
    assert {name: runtime_of(name).name for name in RUNTIMES} == {name: name for name in RUNTIMES}
    assert OTHERS["runtime"] == tuple(RUNTIMES)


def test_placelab_run_has_a_process_for_each_device() -> None:
    """Whose cost is named in place of its own."""
    own, named = runtime_of("run").host, runtime_of("run:host=30us").host
    assert own is not None
    assert named is not None
    assert own.per_device
    assert named.per_device


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("idael", "unknown runtime 'idael'; did you mean 'ideal'"),
        ("ideal:orders=fifo", "'ideal:orders=fifo': unknown knob 'orders'; did you mean 'order'"),
        ("ideal:order=fif", "unknown order 'fif'; did you mean 'fifo'"),
        ("ideal:host=fast", "host 'fast': expected eager"),
        ("ideal:order", "expected knobs as key=value"),
    ],
)
def test_what_names_no_runtime_is_refused(spec: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        runtime_of(spec)


def test_verbs_plan_for_a_runtime() -> None:
    """What is given next to it changes it."""
    model, cluster = "rnnlm:layers=1,steps=2,hidden=8,batch=4", "p100:devices=2"
    placed = placelab.place(model, cluster=cluster, placer="round_robin", runtime="run")
    assert placed.problem.runtime == runtime_of("run")
    assert placed.record.step_seconds == simulate(placed.problem, placed.plan).step_seconds
    other = placelab.simulate(model, placed.plan, cluster=cluster, runtime="run", host="none", order="program")
    assert other.problem.runtime == IDEAL.with_knobs(order=PROGRAM)
    assert other.record.step_seconds < placed.record.step_seconds
