"""Which executor runs a plan; what cannot be run is refused before anything is started."""

from dataclasses import replace

from envs.expansion.layout import Layout
from envs.plans.plan import Plan
from envs.running.adam import Adam
from envs.running.batches_as_planned import batches_as_planned
from envs.running.captured_program import CapturedProgram
from envs.running.divided_batch import program_of_part
from envs.running.dry_step import check_partitioned
from envs.running.op_by_op.gradient_ops import GradientOps
from envs.running.op_by_op.op_step import OpStep
from envs.running.partitioned.partitioned_step import PartitionedStep
from envs.running.pipelined.pipelined_step import PipelinedStep, stages_of
from envs.running.pipelined.replicated_step import ReplicatedStep, shares_of_replicas
from envs.running.plan_rules import check_plan, is_replicated, is_sharded
from envs.running.processes import Process
from envs.running.running_step import RunningStep
from envs.running.sharded.sharded_step import ShardedStep, check_module
from envs.running.training_job import Training
from envs.simulation.simulator import LaidOut
from graphs.capture.examples import example_of, with_data
from graphs.foundation.torch_names import RUN, check_names
from graphs.problem import Problem
from graphs.runtime import process_runtime


def check_can_run(problem: Problem, plan: Plan) -> None:
    """Raise InputError for a plan that cannot be run, and for a version of PyTorch that lacks what is needed."""
    check_names(RUN)
    check_plan(problem, plan)


def by_processes(problem: Problem) -> Problem:
    """The problem, or that of such processes in place of a loop of one, which has no messages between them."""
    if not problem.runtime.streams:
        return problem
    return replace(problem, runtime=process_runtime(problem.cluster))


def check_model(training: Training, problem: Problem, plan: Plan, device: str = "cpu") -> None:
    """Capture the model in this process, and raise InputError if it cannot be run by a plan.

    So what processes would refuse together, each on a `device` like this, is refused before any of them is started.
    What DTensor refuses is known of processors alone: GPUs run other operations.
    """
    check_can_run(problem, plan)
    example = example_of(training.model, training.samples)
    is_tried = bool(plan.split) and device == "cpu"
    program = CapturedProgram.of(with_data(example, training.seed) if is_tried else example)
    program.check(problem.graph)
    if plan.is_placement:
        GradientOps(program, problem.graph)
    elif is_tried:
        check_partitioned(program, problem, plan, next(batches_as_planned(program, seed=training.seed)))
    elif is_replicated(problem, plan) or is_sharded(problem, plan):
        if is_sharded(problem, plan):
            check_module(program, problem, plan)
        shares, micro_batches = parts_of_batch(problem, plan)
        program_of_part(program, sum(shares) * micro_batches, {}, several=min(shares))
    elif not plan.split:
        stages_of(program, problem, plan, {})


def step_of(program: CapturedProgram, problem: Problem, plan: Plan, process: Process, adam: Adam) -> RunningStep:
    """The part of a plan's step that a process runs; all of them make theirs together.

    Raises InputError for what cannot be run.
    """
    if plan.is_placement:
        return OpStep(program, LaidOut.of(problem, plan), process.rank, process.device, adam)
    if plan.split:
        return PartitionedStep(program, problem, plan, process.device, adam)
    way: type[ReplicatedStep | PipelinedStep] = PipelinedStep
    if is_replicated(problem, plan):
        way = ReplicatedStep
    elif is_sharded(problem, plan):
        way = ShardedStep
    return way(program, problem, plan, process, adam.optimizer)


def parts_of_batch(problem: Problem, plan: Plan) -> tuple[tuple[int, ...], int]:
    """The shares that replicas have of the batch, and into how many micro-batches they divide these.

    A plan that says by what each op is divided computes what the undivided model does.
    """
    if plan.split or plan.is_placement:
        return (1,), 1
    if is_replicated(problem, plan) or is_sharded(problem, plan):
        return shares_of_replicas(problem, plan), plan.schedule.micro_batches
    return (1,) * max(map(len, Layout(problem, plan).stage_devices)), plan.schedule.micro_batches
