"""A host that issues ops: a step is bound by the host or by the devices, and nothing changes without one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

import placelab
from envs.plans.plan import Plan
from envs.plans.schedule import Schedule
from envs.simulation.bounds import lower_bound
from envs.simulation.simulator import Simulator, simulate
from evaluation.records.identity import problem_digits
from graphs.cluster import Cluster, Device
from graphs.foundation.errors import InputError
from graphs.host import HOSTS, Collectives, Host, host_of
from graphs.op_graph import Floats, OpGraph
from graphs.problem import Problem
from graphs.runtime import IDEAL, default_runtime, runtime_of
from tests.oracle.strategies import Case, cases
from tests.oracle.test_oracle import brief, simulator_of

LAUNCH = 0.25


def chain(seconds: Floats, phases: list[int] | None = None, *, devices: int = 2, host: Host | None = None) -> Problem:
    """A chain of ops on equal devices with launches, and with links that take no time."""
    ops = len(seconds)
    nothing = np.zeros(ops)
    edges = np.column_stack([np.arange(ops - 1), np.arange(1, ops)])
    graph = OpGraph(
        "chain", tuple(f"op{i}" for i in range(ops)), ("any",) * ops, nothing, nothing, nothing, edges,
        phase=np.array(phases or [0] * ops),
    )  # fmt: skip
    device = Device("", "gpu", 1.0, 1.0, np.inf, LAUNCH)
    cluster = Cluster.uniform("two", device, devices, latency=0.0, bandwidth=np.inf, shared_out=False)
    op_seconds = np.repeat(np.asarray(seconds)[:, None], devices, axis=1)
    return Problem(graph, cluster, op_seconds=op_seconds, runtime=replace(IDEAL, host=host))


def starts(problem: Problem, placement: list[int]) -> list[float]:
    found: list[float] = Simulator(problem).timeline(placement).start.tolist()
    return found


def test_a_step_of_short_ops_takes_what_the_host_takes_and_the_last_op() -> None:
    problem = chain(np.full(10, 0.5), host=Host.uniform(2.0))
    assert starts(problem, [0] * 10) == [2.0 * (op + 1) for op in range(10)]
    assert Simulator(problem).run([0] * 10).step_seconds == 10 * 2.0 + 0.5


def test_a_step_of_long_ops_waits_for_the_first_launch_only() -> None:
    problem = chain(np.full(10, 2.0), host=Host.uniform(0.5))
    assert Simulator(problem).run([0] * 10).step_seconds == 0.5 + 10 * 2.0  # and no launch of the device's own
    assert Simulator(replace(problem, runtime=IDEAL)).run([0] * 10).step_seconds == 10 * 2.0 + 9 * LAUNCH


def test_one_thread_issues_to_both_devices_and_their_copies() -> None:
    host = Host.uniform(1.0)
    assert starts(chain(np.full(4, 0.5), host=host), [0, 0, 1, 1]) == [1, 2, 4, 5]  # the copy is the third launch
    assert starts(chain(np.full(4, 0.5), host=host), [0, 1, 0, 1]) == [1, 3, 5, 7]


def test_autograd_has_a_thread_for_each_device_and_updates_follow_both() -> None:
    graph = chain(np.full(7, 0.5), [0, 0, 1, 1, 1, 2, 2], host=Host.uniform(1.0))
    edges = np.array([[0, 1], [1, 2], [1, 3], [1, 4], [2, 5], [4, 6]])  # of op2 and op3 on one device, op4 on another
    control = np.array([True] * 6)
    problem = replace(graph, graph=replace(graph.graph, edges=edges, control=control))
    assert starts(problem, [0, 0, 0, 0, 1, 0, 1]) == [1, 2, 3, 4, 3, 5, 6]


def test_a_backward_op_is_issued_after_what_it_reads_on_another_device() -> None:
    problem = chain(np.full(4, 0.5), [0, 1, 1, 1], host=Host.uniform(1.0))
    assert starts(problem, [0, 0, 0, 1]) == [1, 2, 3, 5]  # and after its copy, the fourth launch


def test_replicas_are_issued_by_a_process_each() -> None:
    problem = chain(np.full(10, 0.5), host=Host.uniform(2.0))
    apart = Plan(((0, 1),) * 10, schedule=Schedule(micro_batches=1))
    found = simulate(problem, apart)
    assert found.problem.runtime.host == Host.uniform(2.0, per_device=True)
    assert found.step_seconds == 10 * 2.0 + 0.25  # both threads at once


def test_an_op_that_takes_no_time_costs_no_launch() -> None:
    assert starts(chain(np.array([0.5, 0.0, 0.5]), host=Host.uniform(1.0)), [0, 0, 0]) == [1.0, 1.5, 2.0]


def test_each_phase_has_its_cost() -> None:
    problem = chain(np.full(4, 0.5), [0, 1, 2, 3], host=Host(8.0, 4.0, 2.0, 1.0))
    assert starts(problem, [0] * 4) == [8, 12, 14, 16]
    assert starts(problem, [0, 1, 1, 1]) == [8, 20, 22, 24]  # a copy costs what its op does
    process = replace(problem, runtime=replace(IDEAL, host=Host(1.0, 8.0, 2.0, 0.25, per_device=True)))
    assert starts(process, [0, 1, 1, 1]) == [1, 8.25, 10.25, 12.25]  # a message costs its receiver a collective


def test_a_replay_is_issued_by_one_thread_which_pays_for_both_ends_of_a_message() -> None:
    problem = chain(np.full(4, 0.5), [0, 1, 1, 2], host=Host(1.0, 1.0, 2.0, 5.0, in_order=True))
    assert starts(problem, [0, 0, 0, 0]) == [1, 2, 3, 5]
    assert starts(problem, [0, 0, 1, 1]) == [1, 2, 2 + 10 + 1, 15]


def test_a_process_may_wait_for_what_it_is_sent() -> None:
    problem = chain(np.full(4, 0.5), host=Host.uniform(1.0, per_device=True))
    assert starts(problem, [0, 0, 1, 1]) == [1.0, 2.0, 2.5, 3.0]
    waiting = replace(problem, runtime=replace(IDEAL, host=Host.uniform(1.0, per_device=True, waits=True)))
    assert starts(waiting, [0, 0, 1, 1]) == [1.0, 2.0, 2.5 + 2.0, 2.5 + 3.0]  # it receives, then issues both
    of_collective = Collectives(np.zeros(4, np.int64), np.array([False, True, False, False]))
    assert starts(replace(waiting, collectives=of_collective), [0, 0, 1, 1]) == [1.0, 2.0, 2.5, 3.0]


def test_a_process_may_wait_for_its_device_between_passes() -> None:
    """What it has issued of a pass has ended before it issues the next one; each begins with an idle device.

    Views do not count, nor steps of collectives, which other threads take.
    """
    phases, waits = [0, 0, 1, 1, 2], Host.uniform(1.0, per_device=True, waits=True)
    problem = chain(np.full(5, 3.0), phases, host=Host.uniform(1.0, per_device=True))
    assert starts(problem, [0] * 5) == [1.0, 4.0, 7.0, 10.0, 13.0]
    waiting = replace(problem, runtime=replace(IDEAL, host=waits))
    assert starts(waiting, [0] * 5) == [1.0, 4.0, 7.0 + 1.0, 11.0, 14.0 + 1.0]
    assert starts(chain(np.full(5, 0.25), phases, host=waits), [0] * 5) == [1.0, 2.0, 3.25, 4.25, 5.5]
    fetching = Host(1.0, 1.0, 1.0, 1.0, per_device=True, waits=True, fetch=8.0)
    assert starts(replace(waiting, runtime=replace(IDEAL, host=fetching)), [0] * 5) == [9.0, 12.0, 16.0, 19.0, 23.0]
    of_collective = Collectives(np.zeros(5, np.int64), np.array([False, False, True, True, False]))
    assert starts(replace(waiting, collectives=of_collective), [0] * 5) == [1.0, 4.0, 7.0, 10.0, 13.0]
    assert starts(chain(np.array([3.0, 3.0, 0.0, 3.0, 3.0]), phases, host=waits), [0] * 5) == [1.0, 4.0, 7.0, 8.0, 12.0]


def test_a_collective_costs_one_launch_whether_its_steps_take_time_or_not() -> None:
    steps = Collectives(np.array([0, 1, 0, 0]), np.array([False, True, True, False]))
    problem = chain(np.array([0.5, 0.0, 0.0, 0.5]), host=Host(1.0, 1.0, 1.0, 5.0, per_device=True))
    assert starts(problem, [0, 0, 0, 0]) == [1.0, 1.5, 1.5, 2.0]
    assert starts(replace(problem, collectives=steps), [0, 0, 0, 0]) == [1.0, 1.5, 1.5, 7.0]
    assert starts(problem, [0, 0, 1, 1]) == [1.0, 1.5, 1.5, 6.0]  # a message
    assert starts(replace(problem, collectives=steps), [0, 0, 1, 1]) == [1.0, 1.5, 1.5, 1.5]  # a step's is none


@brief
@given(cases(host=True))
def test_orders_one_by_one_and_together_give_the_same_bits(case: Case) -> None:
    simulator = simulator_of(case)
    plans, ops = len(case.placements), len(case.problem.graph)
    orders = np.random.default_rng(ops).integers(0, 3, (plans, ops)).astype(float)
    together = Simulator(case.problem).run_ordered(case.placements, orders)
    for plan, order in enumerate(orders):
        alone = Simulator(case.problem, order=order).run(case.placements[plan])
        assert alone.step_seconds == together.step_seconds[plan]
        assert alone.peak_bytes.tolist() == together.peak_bytes[plan].tolist()
    assert np.array_equal(simulator.seconds(case.placements), simulator.run_batch(case.placements).step_seconds)


@brief
@given(cases(host=True))
def test_bounds_hold_with_a_host(case: Case) -> None:
    bound = lower_bound(case.problem)
    assert (simulator_of(case).seconds(case.placements) >= bound * (1 - 1e-12)).all()


def test_results_with_a_host_are_others() -> None:
    problem = chain(np.full(3, 1.0))
    hosts = (None, Host.uniform(1e-5), Host.uniform(2e-5))
    assert len({problem_digits(replace(problem, runtime=replace(IDEAL, host=host))) for host in hosts}) == 3


def test_verbs_take_a_host() -> None:
    """Both simulate what the engine simulates of a problem with that host."""
    model, cluster = "rnnlm:layers=1,steps=2,hidden=8,batch=4", "p100:devices=2"
    placed = placelab.place(model, cluster=cluster, placer="round_robin", host="30us")
    problem = placed.timeline.problem
    assert problem.runtime.host == Host.uniform(30e-6)
    alone = simulate(replace(problem, runtime=IDEAL), placed.result.plan).step_seconds
    assert placed.record.step_seconds == simulate(problem, placed.result.plan).step_seconds > alone
    again = placelab.simulate(model, placed.result.plan, cluster=cluster, host="30us")
    assert again.record.step_seconds == placed.record.step_seconds
    with pytest.raises(InputError, match="leave out the host"):
        placelab.place(model, cluster="cpu_gpu", host="eager")


def test_a_host_takes_what_was_measured_of_it_on_the_cluster() -> None:
    """Whatever runs a plan, by its name alone; a time that is asked for holds anywhere."""
    measured = Host(21e-6, 33e-6, 4e-6, 10e-6, deferral=HOSTS["eager"].deferral, name="eager")
    problem = chain(np.full(3, 1.0))
    problem = replace(problem, cluster=replace(problem.cluster, hosts={"eager": measured}))

    def host(spec: str) -> Host | None:
        return replace(problem, runtime=runtime_of(spec)).host

    assert host(default_runtime(problem.graph, problem.cluster).name) == measured
    assert host("run") == host("torch-pipelining") == replace(measured, per_device=True)
    assert host("parallelize:host=30us") == Host.uniform(30e-6)
    assert host("megatron") == replace(HOSTS["megatron"], per_device=True)
    assert host("parallelize:host=none") is None
    eager = replace(problem, runtime=replace(IDEAL, host=HOSTS["eager"]))
    by_time = replace(problem, runtime=replace(IDEAL, host=Host.uniform(21e-6)))
    assert starts(eager, [0] * 3) == starts(by_time, [0] * 3)
    elsewhere = replace(eager, cluster=replace(problem.cluster, hosts={}))
    assert starts(elsewhere, [0] * 3)[0] == 44e-6
    assert eager.cluster.fingerprint != elsewhere.cluster.fingerprint
    assert problem_digits(eager) != problem_digits(elsewhere)


def test_calls_of_a_model_that_a_plan_runs_cost_more_but_on_one_device() -> None:
    """A forward op takes 0.5 s and its thread 2, or 5 of a placed model, as does the copy to gpu:1; backward ops 2."""
    host = replace(Host.uniform(2.0), placed=3.0, deferral=7.0)
    problem = chain(np.full(4, 0.5), [0, 0, 1, 1])
    loop = replace(problem, runtime=replace(runtime_of("parallelize"), host=host))
    assert starts(loop, [0, 1, 1, 1]) == [5.0, 15.0, 17.0, 19.0]
    assert starts(loop, [1] * 4) == [2.0, 4.0, 6.0, 8.0]
    assert starts(replace(problem, runtime=replace(IDEAL, host=host)), [0, 1, 1, 1]) == [2.0, 6.0, 8.0, 10.0]
    batch = Simulator(loop).seconds([[0, 1, 1, 1], [0] * 4, [1] * 4])
    assert batch.tolist() == [19.5, 8.5, 8.5]


def test_hosts_are_said_by_name_or_by_time() -> None:
    assert host_of("eager") == HOSTS["eager"]
    assert host_of("30us") == Host.uniform(30e-6)
    assert host_of("none") is None
    with pytest.raises(
        InputError,
        match=r"host 'fast': expected eager, megatron, compiled, replayed, graphs, none, or the .* such as 30us",
    ):
        host_of("fast")
    with pytest.raises(InputError, match=r"a host takes -1.0 seconds to issue an op \(forward\)"):
        Host.uniform(-1.0)


def test_a_host_of_cpus_is_refused() -> None:
    problem = chain(np.full(3, 1.0))
    cpu = replace(problem.cluster.devices[1], name="cpu:0", kind="cpu")
    cluster = replace(problem.cluster, devices=(problem.cluster.devices[0], cpu))
    with pytest.raises(InputError, match=r"'cpu:0' of cluster 'two' runs ops in the thread that issues them"):
        replace(problem, cluster=cluster, runtime=replace(IDEAL, host=Host.uniform(1e-5)))
