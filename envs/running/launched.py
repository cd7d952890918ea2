"""What a launcher such as torchrun says of this process, one of several that it has started, on one host or many.

    torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint HOST:29400 -m placelab run MODEL PLAN ...

It says so by torch.distributed's environment variables (`env://`).
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from envs.running.processes import gpus
from graphs.foundation.errors import InputError, reason

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")
ADDRESS = "MASTER_ADDR"  # of the host of rank 0
_WHERE = "jobs"  # in the store: the port from which jobs come, and a key


@dataclass(frozen=True)
class Launched:
    """A process that a launcher has started with others; rank 0 sends them jobs."""

    rank: int
    size: int
    local_rank: int  # on its host
    address: str

    @classmethod
    def here(cls) -> Launched | None:
        """Ours, or None if it was started alone. Raises InputError for variables that are missing or wrong."""
        if "RANK" not in os.environ:
            return None
        for name in (*NUMBERS, ADDRESS):
            value = os.environ.get(name, "")
            if not value or (name in NUMBERS and not value.isdecimal()):
                raise InputError(
                    f"RANK is set, as torchrun does, and {name} is {value!r}: torchrun sets both; unset RANK where "
                    "processes are to be started from here"
                )
        rank, size, local_rank, _ = (int(os.environ[name]) for name in NUMBERS)
        return cls(rank, size, local_rank, os.environ[ADDRESS])

    @property
    def device(self) -> str:
        """The GPU of its local rank, or the processor of a host without GPUs. Raises InputError for too few GPUs."""
        found = gpus()
        if found and self.local_rank >= len(found):
            raise InputError(
                f"LOCAL_RANK is {self.local_rank}, and its server has {len(found)} GPUs: start no more processes on a "
                "server than it has GPUs, or hide these with CUDA_VISIBLE_DEVICES="
            )
        return found[self.local_rank] if found else "cpu"

    def store(self) -> Store:
        """What all of them read and write. Raises InputError if that of rank 0 cannot be reached."""
        # imported here: the process that starts others need not have PyTorch
        from torch.distributed.distributed_c10d import PrefixStore
        from torch.distributed.rendezvous import rendezvous

        try:
            store, _, _ = next(rendezvous("env://"))
        except Exception as error:  # of several types
            raise self._unreachable(error) from error
        # it may outlive processes that torchrun starts again
        return PrefixStore(f"placelab/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)

    def publish(self, store: Store, port: int, key: bytes) -> None:
        """Tell the others where jobs come from."""
        store.set(_WHERE, f"{port} {key.hex()}")

    def connected(self, store: Store) -> Connection:
        """The connection through which jobs come. Raises InputError if rank 0 ends before there is one."""
        try:
            port, key = store.get(_WHERE).decode().split()
            pipe = Connection(socket.create_connection((self.address, int(port))).detach())
        except (RuntimeError, OSError) as error:
            raise self._unreachable(error) from error
        pipe.send_bytes(bytes.fromhex(key))
        return pipe

    def _unreachable(self, error: Exception) -> InputError:
        return InputError(
            f"rank {self.rank}: rank 0, on {self.address}, has ended or cannot be reached: {reason(error)}"
        )
