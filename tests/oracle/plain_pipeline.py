"""A second, plain reading of orders of passes: each rank waits for what its next pass needs. A chain of stages."""

from __future__ import annotations

from envs.pass_orders import Pass, Passes, PassKind

F, B, I, W = PassKind  # noqa: E741 - the names of the papers


def finishes(passes: Passes, forward: float, input_gradient: float, weight_gradient: float) -> dict[Pass, float]:
    """When each pass ends, if each takes as long on all ranks and nothing is sent. Fails for what runs forever."""
    takes = {F: forward, B: input_gradient + weight_gradient, I: input_gradient, W: weight_gradient}
    last = max(each.stage for of_rank in passes for each in of_rank)
    done: dict[Pass, float] = {}
    free, following = [0.0] * len(passes), [0] * len(passes)
    left = sum(len(of_rank) for of_rank in passes)
    while left:
        before = left
        for rank, of_rank in enumerate(passes):
            while following[rank] < len(of_rank):
                each = of_rank[following[rank]]
                needed = [done.get(need) for need in _needs(each, last, done)]
                if None in needed:
                    break
                free[rank] = max(free[rank], *(time for time in needed if time is not None), 0.0) + takes[each.kind]
                done[each] = free[rank]
                following[rank] += 1
                left -= 1
        assert left < before, f"each rank waits for another, after {following} passes"
    return done


def step_seconds(passes: Passes, forward: float, input_gradient: float, weight_gradient: float) -> float:
    """When the last pass ends."""
    return max(finishes(passes, forward, input_gradient, weight_gradient).values())


def most_in_flight(of_rank: tuple[Pass, ...], stage: int) -> int:
    """Of how many micro-batches a stage keeps activations at most: from a forward pass to the end of the backward."""
    most = held = 0
    for each in of_rank:
        if each.stage == stage:
            held += (each.kind == F) - (each.kind in (B, W))
            most = max(most, held)
    return most


def _needs(each: Pass, last: int, done: dict[Pass, float]) -> list[Pass]:
    """The passes of a chain that another waits for."""
    if each.kind == F:
        return [each._replace(stage=each.stage - 1)] if each.stage else []
    if each.kind == W:
        return [each._replace(kind=I)]
    own = each._replace(kind=F)
    if each.stage == last:
        return [own]
    later = [each._replace(stage=each.stage + 1, kind=kind) for kind in (B, I)]
    return [own, next((need for need in later if need in done), later[0])]
