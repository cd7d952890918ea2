"""Runtimes: named ways of running plans, and what a spec changes of one."""

from dataclasses import replace
from typing import get_args

import pytest

import placelab
from envs.plans.schedule import AllReduce
from envs.simulation.simulator import simulate
from evaluation.commands.flag_values import OTHERS
from graphs.files.load import load_cluster, load_graph
from graphs.foundation.errors import InputError
from graphs.host import HOSTS, host_of
from graphs.problem import Problem
from graphs.runtime import FIFO, IDEAL, LONGEST_PATH, PROGRAM, RUNTIMES, runtime_of
from placers.data_parallel import DataParallel


def test_a_name_says_what_differs_from_its_kind() -> None:
    assert runtime_of("ideal") == IDEAL
    assert (IDEAL.order, IDEAL.host) == (LONGEST_PATH, None)
    assert runtime_of("ideal:order=longest-path").name == "ideal"
    assert runtime_of("ideal:order=fifo") == runtime_of("fifo")
    assert IDEAL.with_knobs(order=PROGRAM, host="30us").name == "ideal:order=program,host=30us"
    assert IDEAL.with_knobs(order=PROGRAM).with_knobs(order=LONGEST_PATH).name == "ideal"
    assert IDEAL.with_knobs(host="30us").host == host_of("30us")
    assert runtime_of("fifo").with_knobs(host="none") == RUNTIMES[FIFO.name]


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
        ("megatron:overlap=yes", "overlap=yes: gradients are summed up during the backward pass or after it; expected"),
        ("run:overlap=true", "'run:overlap=true': unknown knob 'overlap'"),
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
    assert other.problem.runtime == replace(IDEAL.with_knobs(order=PROGRAM), all_reduce="nccl")
    assert other.record.step_seconds < placed.record.step_seconds


@pytest.mark.parametrize(
    ("runtime", "cluster", "kind"),
    [
        ("ideal", "p100:devices=4", "ring"),
        ("fifo", "p100:devices=4", "ring"),
        ("megatron", "p100:devices=4", "nccl"),
        ("run:host=none", "p100:devices=4", "nccl"),
        ("run:host=none", "cpus", "ring"),
    ],
)
def test_replicas_sum_up_as_the_runtime_does(runtime: str, cluster: str, kind: AllReduce) -> None:
    """Unless a plan says it; CPUs have no NCCL."""
    problem = Problem(load_graph("rnnlm:layers=1,steps=2,hidden=64,batch=8"), load_cluster("p100:devices=4"))
    if cluster == "cpus":
        cpus = tuple(replace(each, kind="cpu") for each in problem.cluster.devices)
        problem = replace(problem, cluster=replace(problem.cluster, devices=cpus))
    problem = replace(problem, runtime=runtime_of(runtime))
    plan = DataParallel(micro_batches=1).place(problem).plan
    assert plan.schedule.all_reduce == ""
    seconds = {
        named: simulate(problem, replace(plan, schedule=replace(plan.schedule, all_reduce=named))).step_seconds
        for named in get_args(AllReduce)
    }
    assert seconds["ring"] != seconds["nccl"]
    assert simulate(problem, plan).step_seconds == seconds[kind]


def test_a_replayed_step_is_launched_as_graphs_or_called_op_by_op() -> None:
    """The host says which of the two it is, unless one is named."""
    assert runtime_of("replay").host == HOSTS["graphs"]
    called = runtime_of("replay:graphs=false")
    assert (called.graphs, called.host, called.name) == (False, HOSTS["replayed"], "replay:graphs=false")
    assert runtime_of("replay").with_knobs(graphs="false") == called
    assert called.with_knobs(graphs="true") == runtime_of("replay")
    assert runtime_of("replay:graphs=false,host=none").host is None
    with pytest.raises(InputError, match="graphs=maybe: ops are launched as CUDA graphs or called one by one"):
        runtime_of("replay:graphs=maybe")
    with pytest.raises(InputError, match="unknown knob 'graphs'"):
        runtime_of("run:graphs=true")
