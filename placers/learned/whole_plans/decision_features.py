"""Decision features: what a policy of whole plans sees of each action that is possible now, and of the plan so far.

Rows begin with what is the same for all actions: the problem (`context`) and what is decided. All are logarithms of
ratios, shares and flags, within a few units of zero, whatever the model and the cluster.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.pipelines.construction import Construction, Decision
from graphs.op_graph import Floats, Ints
from placers.learned.whole_plans.chain_view import MICRO_BATCHES, PASS_ORDERS, ProblemChain
from placers.learned.whole_plans.outlook import EqualStageEstimates

CONTEXT, PROGRESS = 18, 14
OF_ACTION = {
    Decision.MICRO_BATCHES: 6, Decision.ORDER: len(PASS_ORDERS) + 1, Decision.DEVICES: 16, Decision.END: 16,
    Decision.RECOMPUTE: 5,
}  # fmt: skip
WIDTH = {decision: CONTEXT + PROGRESS + count for decision, count in OF_ACTION.items()}
FEATURES = ("whole plans, 1",)  # what the columns mean: another number is of other ones
FAR = 5.0  # no logarithm of a ratio counts for more


def log_ratio(value: Floats | float, other: Floats | float) -> Floats:
    """Logarithm of a ratio, within `FAR`; equal where both are nothing."""
    found = np.log(np.maximum(value, 1e-9)) - np.log(np.maximum(other, 1e-9))
    return np.asarray(np.clip(found, -FAR, FAR))


@dataclass(frozen=True)
class Choice:
    """A decision: the actions that are possible, and a row of features for each."""

    decision: Decision
    actions: Ints  # (actions,) their numbers, in ascending order
    rows: Floats  # (actions, WIDTH of the decision)


@dataclass(frozen=True, eq=False)
class ProblemContext:
    """A problem, and what follows from it alone."""

    view: ProblemChain
    outlook: EqualStageEstimates

    @cached_property
    def context(self) -> Floats:
        """(CONTEXT,) what is the same for all decisions."""
        view, outlook = self.view, self.outlook
        row, layers = view.row, len(view.work) - 1
        speed, memory = view.speed[row], view.memory[row]
        need = view.held[-1] + view.kept[-1]
        pairs = ~np.eye(len(row), dtype=np.bool_)
        per_byte, latency = (links[np.ix_(row, row)][pairs] for links in (view.per_byte, view.latency))
        per_byte, latency = (links if len(links) else np.zeros(1) for links in (per_byte, latency))
        least = outlook.seconds.min(axis=0)
        return np.array(
            [
                np.log(len(row)) - 1.5, np.log(layers) - 3.0, np.log2(max(view.problem.graph.samples, 1)) / 4 - 1.5,
                float(view.problem.graph.is_training), speed.min(), speed.mean(),
                *log_ratio(np.array([need, view.held[-1]]), memory.min()), log_ratio(need, memory.sum()),
                *log_ratio(view.weights[-1] * np.array([per_byte.min(), per_byte.max()]), 1.0),
                *log_ratio(np.median(view.crossing[1:-1]) if layers > 1 else 0.0, 1 / np.maximum(
                    [per_byte.min(), per_byte.max()], 1e-30)),
                log_ratio(latency.max(), 1.0), log_ratio(view.fixed[-1], view.work[-1]),
                log_ratio(np.diff(view.work).max(), 1.0),
                log_ratio(least[:, 1].min(), outlook.best), log_ratio(least[1].min(), outlook.best),
            ]
        )  # fmt: skip

    @cached_property
    def _least_per_byte(self) -> float:
        """Of the fastest link."""
        row = self.view.row
        return float(self.view.per_byte[np.ix_(row, row)].min(initial=np.inf, where=~np.eye(len(row), dtype=np.bool_)))

    def choice(self, construction: Construction) -> Choice:
        """What may be decided next, in a construction that has not ended."""
        actions = self._possible(construction)
        rows = _ROWS[construction.decision](self, construction, actions)
        shared = np.concatenate([self.context, self._progress(construction)])
        together = np.concatenate([np.tile(shared, (len(actions), 1)), rows], axis=1)
        return Choice(construction.decision, actions, np.nan_to_num(np.clip(together, -FAR, FAR)))

    def _possible(self, construction: Construction) -> Ints:
        """Those that leave room; of devices that are alike one."""
        view, actions = self.view, construction.actions
        mask = view.pipelines.with_room(construction)
        if construction.decision == Decision.DEVICES:
            free = np.zeros(len(view.used), np.bool_)
            free[construction.free] = True
            first = np.zeros_like(free)
            numbers = np.flatnonzero(free)
            first[numbers[np.unique(view.alike[numbers], return_index=True)[1]]] = True
            devices = slice(actions.first_device, actions.first_device + len(free))
            kept = mask.copy()
            kept[devices] &= first
            mask = kept if kept.any() else mask
        return np.flatnonzero(mask)

    def _progress(self, construction: Construction) -> Floats:
        """(PROGRESS,) what is decided."""
        view, stages = self.view, construction.stages
        micro_batches = max(construction.micro_batches, 1)
        free = construction.free
        speed = float(view.speed[free].sum()), float(view.speed[construction.chosen].sum())
        left = float(view.work[-1] - view.work[construction.begin])
        slowest = max((self._once(construction, stage.first, stage.end, stage.devices) for stage in stages), default=0)
        last = len(stages[-1].devices) if stages else 0
        order = [float(construction.order == each) for each in PASS_ORDERS]
        return np.array(
            [
                np.log2(micro_batches) / 3 - 1, *order, len(stages) / 4, left, speed[0] / view.speed[view.row].sum(),
                speed[1] / view.speed[view.row].sum(), log_ratio(last, max(len(construction.chosen), 1)),
                log_ratio(slowest * micro_batches * (speed[0] + speed[1]), left) if stages else 0.0,
                float(bool(construction.lapping)),
            ]
        )  # fmt: skip

    def _once(self, construction: Construction, first: int, end: int, devices: tuple[int, ...] | list[int]) -> float:
        """About the seconds of one micro-batch on a stage."""
        view = self.view
        slowest, count = float(view.speed[list(devices)].min()), max(len(devices), 1)
        shared = (view.work[end] - view.work[first]) / (max(construction.micro_batches, 1) * count)
        return float((shared + view.fixed[end] - view.fixed[first]) / slowest)

    # ---- rows of each decision ---------------------------------------------------------------------------------------

    def _micro_batch_rows(self, construction: Construction, actions: Ints) -> Floats:  # noqa: ARG002 - as the others
        seconds, best = self.outlook.seconds, self.outlook.best
        several = seconds[actions]
        return np.column_stack(
            [
                actions / 3 - 1, log_ratio(several.min(axis=(1, 2)), best),
                log_ratio(several[:, :, 1].min(axis=1), best), log_ratio(several[:, 1].min(axis=1), best),
                log_ratio(several[:, :, 2:].min(axis=(1, 2), initial=1e3), best),
                several.min(axis=1).argmin(axis=1) / 4,  # stages
            ]
        )  # fmt: skip

    def _order_rows(self, construction: Construction, actions: Ints) -> Floats:
        number = MICRO_BATCHES.index(construction.micro_batches)
        several = self.outlook.seconds[number]
        is_one = log_ratio(several[:, 1].min(), several.min())
        kinds = np.eye(len(PASS_ORDERS))[actions - construction.actions.first_order]
        return np.column_stack([kinds, np.full(len(actions), is_one)])

    def _device_rows(self, construction: Construction, actions: Ints) -> Floats:
        view, of = self.view, construction.actions
        number, count = MICRO_BATCHES.index(construction.micro_batches), len(construction.chosen)
        likely = np.append(self.outlook.of_replicas(number), np.full(2, 1e3))
        least = float(likely.min())
        before = list(construction.stages[-1].devices) if construction.stages else []
        rows = np.zeros((len(actions), OF_ACTION[Decision.DEVICES]))
        size = view.crossing[construction.begin] / max(construction.micro_batches, 1)
        for row, action in zip(rows, actions.tolist(), strict=True):
            is_device = of.first_device <= action < of.enough
            row[:3] = is_device, action == of.enough, action == of.again
            row[3] = log_ratio(float(likely[count + 1 :].min()) if is_device else float(likely[count]), least)
            row[4] = np.log1p(count) - 1
            row[5] = log_ratio(float(likely[count]), least) if count else 0.0
            if not is_device:
                continue
            device = action - of.first_device
            row[6], row[7] = view.speed[device], log_ratio(view.memory[device], view.memory[view.row].max())
            row[8] = view.speed[device] - (view.speed[construction.chosen].min() if count else 1.0)
            for column, others, amount in ((9, before, size), (11, construction.chosen, view.weights[-1])):
                if others:
                    slowest = (view.latency[others, device] + view.per_byte[others, device] * amount).max()
                    row[column] = log_ratio(slowest, 1.0)
                    row[column + 1] = view.per_byte[others, device].max() > 2 * self._least_per_byte
            row[13] = np.log1p(int((view.alike[construction.free] == view.alike[device]).sum())) - 1
            row[14] = log_ratio(view.held[-1] - view.held[construction.begin], view.memory[device])
            row[15] = view.speed[device] / view.speed[construction.free].max()
        return rows

    def _end_rows(self, construction: Construction, actions: Ints) -> Floats:
        view, begin = self.view, construction.begin
        ends = actions - construction.actions.first_end + 1
        micro_batches, chosen = construction.micro_batches, construction.chosen
        count, layers = len(chosen), len(view.work) - 1
        free = construction.free
        mine, others = float(view.speed[chosen].min() * count), float(view.speed[free].sum())
        work, fixed = view.work[ends] - view.work[begin], view.fixed[ends] - view.fixed[begin]
        once = (work / (micro_batches * count) + fixed) / (mine / count)
        left = view.work[-1] - view.work[ends] + (view.fixed[-1] - view.fixed[ends]) * micro_batches
        rest = np.where(left > 0, left / (micro_batches * max(others, 1e-3)), 0.0)
        before = max(
            (self._once(construction, stage.first, stage.end, stage.devices) for stage in construction.stages),
            default=0.0,
        )
        sending = self._sending(construction, free, ends)
        worst = np.maximum(np.maximum(once, rest), np.maximum(before, sending))
        total = (micro_batches - 1) * worst + once + rest + 2 * sending
        share = 1.0 / (micro_batches * count)
        kept = (view.kept[ends] - view.kept[begin]) * share
        held, room = view.held[ends] - view.held[begin], float(view.memory[chosen].min())
        following = min(1 + len(free), micro_batches)
        room_left = float(view.memory[free].sum()) if free else 1e-9
        near = view.crossing[np.clip(ends[:, None] + np.arange(-2, 3), 1, layers - 1)].min(axis=1)
        is_last = ends == layers
        return np.column_stack(
            [
                log_ratio(once, rest), log_ratio(worst, worst.min()), log_ratio(total, total.min()), is_last,
                is_last * len(free) / max(len(view.row), 1), log_ratio(sending, once), log_ratio(held + kept, room),
                log_ratio(held + kept * following, room),
                log_ratio(view.held[-1] - view.held[ends], room_left) * ~is_last,
                log_ratio(view.crossing[ends], near) * ~is_last, (ends - begin) / layers,
                log_ratio(work * (mine + others), (view.work[-1] - view.work[begin]) * mine),
                log_ratio(once, before) if construction.stages else np.zeros(len(ends)),
                log_ratio(total, total[is_last].min(initial=1e3)), worst.argsort().argsort() < 1,
                total.argsort().argsort() < 1,
            ]
        )  # fmt: skip

    def _sending(self, construction: Construction, free: list[int], ends: Ints) -> Floats:
        """(ends,) about the seconds of sending a micro-batch on to the nearest free device."""
        view, chosen = self.view, construction.chosen
        if not free:
            return np.zeros(len(ends))
        size = view.crossing[ends] / (construction.micro_batches * len(chosen))
        nearest = np.array(free)[int(view.per_byte[np.ix_(chosen, free)].max(axis=0).argmin())]
        there = view.latency[chosen, nearest].max() + view.per_byte[chosen, nearest].max() * size
        return np.where(ends == len(view.work) - 1, 0.0, there)

    def _recompute_rows(self, construction: Construction, actions: Ints) -> Floats:
        view, stage = self.view, construction.stages[-1]
        share = 1.0 / (construction.micro_batches * len(stage.devices))
        kept = (view.kept[stage.end] - view.kept[stage.first]) * share
        held = view.held[stage.end] - view.held[stage.first]
        free = len(construction.free)
        is_last = construction.begin == len(view.work) - 1
        flying = 1 if is_last else min(construction.micro_batches, 1 + max(free, 1))
        if construction.order.name == "gpipe":
            flying = construction.micro_batches
        room = float(view.memory[list(stage.devices)].min())
        is_again = (actions == construction.actions.recompute).astype(float)
        return np.column_stack(
            [
                is_again, is_again * log_ratio(held + kept * flying, room),
                (1 - is_again) * log_ratio(held + kept * flying, room), is_again * log_ratio(held + kept, room),
                is_again * len(construction.recomputed) / max(len(construction.stages) - 1, 1),
            ]
        )  # fmt: skip


_ROWS = {
    Decision.MICRO_BATCHES: ProblemContext._micro_batch_rows,
    Decision.ORDER: ProblemContext._order_rows,
    Decision.DEVICES: ProblemContext._device_rows,
    Decision.END: ProblemContext._end_rows,
    Decision.RECOMPUTE: ProblemContext._recompute_rows,
}
