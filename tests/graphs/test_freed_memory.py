"""A process that keeps what it frees is not given cleared pages again."""

import ctypes
import resource
import sys

import pytest

from graphs.foundation.freed_memory import keep_freed_memory

BLOCK = 64 << 20  # bytes


@pytest.mark.skipif(sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        block = ctypes.c_void_p(libc.malloc(BLOCK))
        ctypes.memset(block, 1, BLOCK)
        libc.free(block)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    keep_freed_memory()
    faults()
    assert faults() < 100, "64 MiB have 16,384 pages"
