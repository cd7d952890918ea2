"""Sequences of passes of one rank, as several orders write them."""

from collections import defaultdict

from envs.pass_orders import Pass, Passes, PassKind, Ranks
from graphs.foundation.errors import InputError


class Sequence:
    """The passes of a rank while they are written: every kind of pass of a stage takes its next micro-batch."""

    def __init__(self) -> None:
        self._passes: list[Pass] = []
        self._next: defaultdict[tuple[int, PassKind], int] = defaultdict(int)
        self._pending: list[tuple[int, int]] = []  # stage and micro-batch of weight gradients, the oldest first

    def forward(self, stage: int) -> None:
        """The forward pass of a stage."""
        self._add(stage, PassKind.FORWARD, self._take(stage, PassKind.FORWARD))

    def backward(self, stage: int) -> None:
        """The whole backward pass of a stage."""
        self._add(stage, PassKind.BACKWARD, self._take(stage, PassKind.BACKWARD))

    def input_gradient(self, stage: int) -> None:
        """The input gradient of a stage; its weight gradient is pending from now on."""
        micro_batch = self._take(stage, PassKind.BACKWARD)
        self._add(stage, PassKind.INPUT_GRADIENT, micro_batch)
        self._pending.append((stage, micro_batch))

    def weight_gradient(self, stage: int | None = None) -> None:
        """The weight gradient that has been pending longest, of a stage or of any; nothing if there is none."""
        for number, (of, micro_batch) in enumerate(self._pending):
            if stage in (None, of):
                del self._pending[number]
                self._add(of, PassKind.WEIGHT_GRADIENT, micro_batch)
                return

    def all_weight_gradients(self, stage: int | None = None) -> None:
        """All weight gradients that are pending, of a stage or of any, the oldest first."""
        for _ in range(len(self._pending)):
            self.weight_gradient(stage)

    def of_the_first(self, micro_batches: int) -> tuple[Pass, ...]:
        """The passes of the first micro-batches; those of others are left out."""
        return tuple(each for each in self._passes if each.micro_batch < micro_batches)

    def _take(self, stage: int, kind: PassKind) -> int:
        self._next[stage, kind] += 1
        return self._next[stage, kind] - 1

    def _add(self, stage: int, kind: PassKind, micro_batch: int) -> None:
        self._passes.append(Pass(stage, kind, micro_batch))


def one_forward_one_backward(
    stages: tuple[int, ...], micro_batches: int, *, warm_up: int, together: int, weights_behind: int = -1
) -> tuple[Pass, ...]:
    """Passes of a rank: `warm_up` forward passes, then a forward and a backward pass in turns, then the backward ones.

    Of several stages each runs `together` micro-batches before the next one does, forward from the first stage and
    backward from the last. With `weights_behind` >= 0 the backward passes are input gradients: each but the first that
    many is followed by the weight gradient that has been pending longest, and the others come in the end.
    """
    sequence, total = Sequence(), len(stages) * micro_batches
    warm_up = min(warm_up, total)

    def forward(number: int) -> None:
        sequence.forward(stages[number // together % len(stages)])

    def backward(number: int) -> None:
        stage = stages[-1 - number // together % len(stages)]
        if weights_behind < 0:
            sequence.backward(stage)
            return
        sequence.input_gradient(stage)
        if number >= weights_behind:
            sequence.weight_gradient()

    for number in range(warm_up):
        forward(number)
    for number in range(total):
        if warm_up + number < total:
            forward(warm_up + number)
        backward(number)
    sequence.all_weight_gradients()
    return sequence.of_the_first(micro_batches)


def interleaved(ranks: Ranks, micro_batches: int, who: str, *, ahead: int, weights_wait: bool = False) -> Passes:
    """Of each rank its passes: `ahead` forward passes more in the beginning than the next rank.

    With `weights_wait` weight gradients lag behind, on the first rank least. Raises InputError as `check_interleaved`,
    and unless the micro-batches are equal rounds.
    """
    check_interleaved(ranks, who)
    together = rounds_of(micro_batches, ranks, who)
    return tuple(
        one_forward_one_backward(
            stages, micro_batches, together=together, weights_behind=rank if weights_wait else -1,
            warm_up=(len(stages) - 1) * together + ahead * (len(ranks) - 1 - rank),
        )
        for rank, stages in enumerate(ranks)
    )  # fmt: skip


def rounds_of(micro_batches: int, ranks: Ranks, who: str) -> int:
    """How many micro-batches each stage of an interleaved pipeline runs before the next stage of its rank does.

    As many as there are ranks in Megatron; as in PyTorch, equal rounds of at least as many are allowed, and fewer
    micro-batches than ranks are one round. Raises InputError where the rounds are not equal.
    """
    rounds = max(1, micro_batches // len(ranks))
    if micro_batches % rounds:
        below, above = micro_batches // rounds * rounds, (micro_batches // rounds + 1) * rounds
        raise InputError(
            f"the order {who!r} runs {micro_batches} micro-batches on {len(ranks)} devices in {rounds} rounds, which "
            f"must be equal; use {below} or {above} micro-batches"
        )
    return micro_batches // rounds


def check_interleaved(ranks: Ranks, who: str) -> None:
    """Raise InputError unless the stages of rank r of P are r, P + r, 2 P + r, ...; `who` is the order that asks."""
    count = len(ranks)
    if any(stages != tuple(range(rank, count * len(ranks[0]), count)) for rank, stages in enumerate(ranks)):
        expected = [tuple(range(rank, 2 * count, count)) for rank in range(count)]
        raise InputError(
            f"the order {who!r} takes stages on a device that are {count} apart, such as {expected}; "
            f"got stages {list(ranks)}"
        )


def check_v_shaped(ranks: Ranks, who: str) -> None:
    """Raise InputError unless the stages of rank r of P are r and 2 P - 1 - r; `who` is the order that asks."""
    expected = tuple((rank, 2 * len(ranks) - 1 - rank) for rank in range(len(ranks)))
    if ranks != expected:
        raise InputError(
            f"the order {who!r} takes two stages on a device, down and up again, here {list(expected)}; "
            f"got stages {list(ranks)}"
        )
