"""Record: what one placer did on one problem, and Failure: that it gave no plan."""

import msgspec

from envs.plans.conditions import Conditions
from graphs.problem import STEP_TIME
from graphs.runtime import FIFO


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One placer on one problem with one seed."""

    problem: str  # graph@cluster
    placer: str
    seed: int
    step_seconds: float  # of the plan, as the simulator says
    fits: bool  # whether every device holds what the plan puts there
    peak_bytes: tuple[float, ...]  # (devices,)
    simulations: int  # placements that the placer simulated
    search_seconds: float  # processor seconds of the placer alone; its wall clock in earlier records
    lower_bound_seconds: float  # of all op placements, or of whole plans with the same copies
    curve: tuple[tuple[int, float], ...] = ()  # of a search: (simulations, step seconds) whenever it got better
    max_load: float | None = None  # milliseconds, as published; if that is the objective
    key: str = ""  # hex digits that change with all that the result depends on (`evaluation.records.identity`)
    budget: int | None = None  # placements that the placer might simulate
    cost_model: str = ""  # what timed the ops (`envs.costs.timing`)
    timing_remarks: tuple[str, ...] = ()  # sentences on what to expect of its times (`evaluation.records.step_errors`)
    conditions: Conditions = Conditions()  # how the problem's plans are run, and what times them; earlier: not known
    order: str = FIFO.name  # under which the plan is run: a rule, or "given"; what is read without one was run so
    program_seconds: float | None = None  # step time of the same plan with ops in PyTorch's own order
    micro_batches: int = 1
    replicas: tuple[int, ...] = ()  # (stages,) devices of each stage, of a plan that is no op placement
    pass_order: str = ""  # of the passes of these stages, if they are not run as they are ready
    objective: str = STEP_TIME.name
    objective_value: float | None = None  # seconds, of an objective other than the step time
    samples: int = 0  # of a step; 0 if not known
    latency_seconds: float | None = None  # of the forward pass of a micro-batch (`evaluation.tables.plan_latency`)
    alone_seconds: float | None = None  # ... on the fastest device alone, if one holds it
    robust_seconds: float | None = None  # of the step, median over noise (`envs.simulation.robustness`), if computed
    worst_seconds: float | None = None  # ... the slowest
    free_seconds: float | None = None  # ... without noise, where every transfer has a link of its own
    notes: tuple[str, ...] = ()  # sentences of the placer on its plan

    def __post_init__(self) -> None:
        if self.objective == STEP_TIME.name:  # msgspec leaves out a default only if it is the same object
            msgspec.structs.force_setattr(self, "objective", STEP_TIME.name)

    @property
    def case(self) -> tuple[str, str, int]:
        """Problem, placer and seed."""
        return self.problem, self.placer, self.seed

    @property
    def micro_batch_samples(self) -> float:
        """Samples of a micro-batch, which the latency is of; 0 if not known."""
        return self.samples / self.micro_batches

    @property
    def objective_seconds(self) -> float:
        """What the problem minimises: the step time, its median under noise, or another objective."""
        if self.robust_seconds is not None:
            return self.robust_seconds
        if self.objective_value is not None:
            return self.objective_value
        return self.step_seconds if self.max_load is None else self.max_load / 1e3


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A placer that gave no plan for a problem."""

    problem: str  # graph@cluster
    placer: str
    seed: int
    reason: str  # a sentence
