"""What is sent are the transfers of the simulation, and one order of all ops has each of them before it is read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from envs.plans.plan import Plan
from envs.running.op_by_op.gradient_ops import GradientOps
from envs.running.op_by_op.layouts import TensorLayout
from envs.running.op_by_op.op_step import step_order
from envs.running.op_by_op.sent_tensors import SentTensors, sent_tensors
from envs.simulation.simulator import LaidOut
from envs.timelines.timeline import Timeline
from graphs.files.load import load_cluster
from graphs.op_graph import OpGraph, Phase
from graphs.problem import Problem
from tests.drawn import examples
from tests.envs.running.trained_models import program_of

EXACT = ("mlp", "gpt", "conv", "recurrent")  # whose ops read nothing that has no gradient, but inputs
OTHERS = ("experts", "twice", "views")
Key = tuple[int, int, int]  # op, source, destination


@dataclass(frozen=True)
class Case:
    """A random placement of a model."""

    ops: GradientOps
    laid: LaidOut
    placement: list[int]  # (ops,) devices

    @classmethod
    def of(cls, name: str, seed: int, *, is_ordered: bool = False) -> Case:
        random = np.random.default_rng(seed)
        devices = int(random.integers(2, 6))
        problem = Problem(program_of(name).step, load_cluster(f"p100x{devices}"))
        units = random.integers(0, devices, problem.graph.num_units)
        order = random.random(len(problem.graph)) if is_ordered else ""
        laid = LaidOut.of(problem, Plan.of_units(problem, units, order=order))
        return cls(GradientOps(program_of(name), problem.graph), laid, laid.placement[problem.graph.units].tolist())

    @property
    def graph(self) -> OpGraph:
        return self.laid.problem.graph

    def timeline(self) -> Timeline:
        return self.laid.simulator().timeline(self.laid.placement)

    def simulated(self) -> dict[Key, float]:
        """The bytes of each transfer."""
        moved = self.timeline().transfers
        keys = zip(moved.output.tolist(), moved.source.tolist(), moved.destination.tolist(), strict=True)
        found = dict(zip(keys, self.graph.moved_bytes[moved.output].tolist(), strict=True))
        assert len(found) == len(moved)
        return found

    def sent(self) -> dict[Key, SentTensors]:
        """The messages that ops read."""
        found = sent_tensors(self.ops, self.placement)
        return {(sent.op, sent.source, sent.destination): sent for sent in found if sent.readers}


@given(seed=st.integers(0, 10**6), name=st.sampled_from(EXACT))
@settings(max_examples=examples(40, 9), deadline=None)
def test_messages_are_the_simulated_transfers(seed: int, name: str) -> None:
    case = Case.of(name, seed)
    assert case.sent().keys() == case.simulated().keys()


@given(seed=st.integers(0, 10**6), name=st.sampled_from(OTHERS))
@settings(max_examples=examples(30, 12), deadline=None)
def test_what_has_no_gradient_is_simulated_and_not_sent(seed: int, name: str) -> None:
    case = Case.of(name, seed)
    graph, sent, simulated = case.graph, case.sent(), case.simulated()
    assert sent.keys() <= simulated.keys()
    for op, _, destination in simulated.keys() - sent.keys():
        assert graph.kinds[op].endswith(".grad")
        readers = [v for u, v in graph.edges.tolist() if u == op and case.placement[v] == destination]
        makers = {int(graph.mirror[reader]) for reader in readers}
        read = [node for node in case.ops.program.parts[int(graph.mirror[op])].reads if case.ops.has_gradient(node)]
        assert not makers & {case.ops.program.op_of(node) for node in read}


@given(seed=st.integers(0, 10**6), name=st.sampled_from(EXACT + OTHERS))
@settings(max_examples=examples(40, 9), deadline=None)
def test_messages_are_as_large_as_transfers_where_an_op_has_one_result(seed: int, name: str) -> None:
    """Of several results those are sent that are read, of several gradients as many; the simulator knows their mean."""
    case = Case.of(name, seed)
    graph, simulated, program = case.graph, case.simulated(), case.ops.program
    for key, sent in case.sent().items():
        op, forward = sent.op, int(graph.mirror[sent.op])
        if graph.phase[op] == Phase.FORWARD:
            if isinstance(program.parts[op].results[0].meta["val"], Tensor) and len(program.parts[op].results) == 1:
                assert sent.packed.size == simulated[key]
        elif graph.phase[op] == Phase.UPDATE:
            assert sent.packed.size <= simulated[key]  # of several weights those that are read there
        elif op == case.ops.grad_weight.get(forward):
            assert sent.packed.size <= simulated[key]
        else:
            wanted = case.ops.wanted(forward)
            sizes = [TensorLayout.of_gradient(node.meta["val"]).size for node in wanted]
            made = graph.output_bytes[[program.op_of(node) for node in wanted]].tolist()
            if sizes == made and len(wanted) == len(program.parts[forward].reads) and len(set(sizes)) == 1:
                assert sum(tensor.layout.size for tensor in sent.tensors) == simulated[key] * len(sent.tensors)


@given(seed=st.integers(0, 10**6), name=st.sampled_from(EXACT + OTHERS), is_ordered=st.booleans())
@settings(max_examples=examples(40, 9), deadline=None)
def test_one_order_of_all_ops_has_each_message_sent_before_it_is_read(seed: int, name: str, is_ordered: bool) -> None:
    """Then the first op in it that has not run can always run, and no process waits for ever."""
    case = Case.of(name, seed, is_ordered=is_ordered)
    start = case.timeline().start
    order = step_order(case.graph, start)
    place = {op: number for number, op in enumerate(order)}
    assert sorted(order) == list(range(len(case.graph)))
    assert all(place[producer] < place[consumer] for producer, consumer in case.graph.edges.tolist())
    for sent in case.sent().values():
        assert all(place[sent.op] < place[reader] for reader in sent.readers)
        assert {case.placement[reader] for reader in sent.readers} == {sent.destination}
    assert np.all(np.diff(start[order]) >= 0)  # and it is that of the simulation


def test_a_buffer_is_sent_to_where_it_is_read_in_the_next_step() -> None:
    program = program_of("twice")
    problem = Problem(program.step, load_cluster("p100x2"))
    statistic = "norm.running_mean"
    reads = [op for op, part in enumerate(program.parts) if statistic in part.buffers.values()]
    changes = [op for op, part in enumerate(program.parts) if statistic in part.updates]
    assert len(reads) == len(changes) == 1
    assert reads < changes
    mirror = problem.graph.mirror.tolist()
    placement = [int((forward if forward >= 0 else op) in changes) for op, forward in enumerate(mirror)]
    found = [sent for sent in sent_tensors(GradientOps(program, problem.graph), placement) if sent.op in changes]
    [after] = [sent for sent in found if not sent.readers]
    assert (after.source, after.destination) == (1, 0)
    assert {tensor.which for tensor in after.tensors} == {statistic, "norm.running_var"}
