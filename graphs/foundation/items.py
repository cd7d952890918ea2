"""Items of work, each a function of its input alone: done in this process or in others, and their results as they come.

    with closing(results(Task.do, tasks, workers=2, shared=(Problem,))) as done:
        for task, result in done: ...

In which order, in which process and after how many attempts an item is done changes no result. Several workers are
processes of dask.distributed (the extra `cluster`).
"""

import multiprocessing
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

from graphs.foundation.engine import UNGUARDED, Engine, Item, Killed, Result, Workers
from graphs.foundation.errors import InputError
from graphs.foundation.extras import check_installed


class ThisProcess:
    """Does one item after another."""

    def results(self, do: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[Item, Result | Killed]]:
        """Each item with its result, in their order."""
        for item in items:
            yield item, do(item)


class Threads:
    """Does items side by side on threads of this process: for compiled code, which leaves its lock to others."""

    def results(self, do: Callable[[Item], Result], items: Sequence[Item]) -> Generator[tuple[Item, Result | Killed]]:
        """Each item with its result, in their order."""
        with ThreadPoolExecutor() as pool:
            yield from zip(items, pool.map(do, items), strict=True)


def results(
    do: Callable[[Item], Result], items: Sequence[Item], workers: Workers = 1, *, shared: tuple[type, ...] = ()
) -> Generator[tuple[Item, Result | Killed]]:
    """Each item with its result, when it is done; no process is started for a single item.

    Raises InputError as `check_workers` and `opened` do, and what `do` raises.
    """
    few = isinstance(workers, int) and len(items) < 2
    with opened(1 if few else workers if isinstance(workers, str) else min(workers, len(items)), shared) as engine:
        yield from engine.results(do, items)


def in_order(engine: Engine, do: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """All results, in the order of the items. Raises InputError if an item's process ended each time, and as `do`."""
    found = dict[int, Result]()
    with closing(engine.results(do, items)) as done:
        for item, result in done:
            if isinstance(result, Killed):
                raise InputError(result.reason)
            found[id(item)] = result
    return [found[id(item)] for item in items]


@contextmanager
def opened(workers: Workers = 1, shared: tuple[type, ...] = (), *, threads: bool = False) -> Iterator[Engine]:
    """An engine for any number of calls; its processes end with the context.

    Objects of the types in `shared`, which must not change, are sent to each process once, by their content, and not
    with every item. Without other processes, items are done one after another, or by `threads`. Raises InputError as
    `check_workers` does, and if no process can begin, because the script that asks for them lacks its guard.
    """
    if workers == 1:
        yield Threads() if threads else ThisProcess()
        return
    check_workers(workers)
    from graphs.foundation.dask_engine import on_dask  # an optional package, and slow to import

    with on_dask(workers, shared) as engine:
        yield engine


def check_workers(workers: Workers) -> None:
    """Raise InputError if there cannot be such workers: too few, dask is missing, or no scheduler is at the address."""
    if isinstance(workers, int):
        if workers < 1:
            raise InputError(f"workers is {workers}; expected at least 1")
        if workers == 1:
            return
    check_installed("distributed", "more than one worker")
    if isinstance(workers, str):
        from graphs.foundation.dask_engine import check_scheduler  # an optional package, and slow to import

        check_scheduler(workers)
    elif getattr(multiprocessing.current_process(), "_inheriting", False):  # as multiprocessing itself finds out
        raise InputError(UNGUARDED)  # this process is only about to begin: it runs the script again
