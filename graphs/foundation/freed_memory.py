"""Freed memory that a process keeps for itself: a training allocates the same tens of megabytes thousands of times.

The C library gives large blocks back to the system when they are freed, and the system clears every page of the next
ones: a fifth of an update's time. A process that keeps them is as large as it ever was, and no larger.
"""

import ctypes

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # of glibc's malloc.h
LARGEST = 1 << 30  # bytes of a block that is kept


def keep_freed_memory() -> None:
    """Have this process keep what it frees. Does nothing where the C library is not glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # Windows has no such library, macOS and musl no such function
        return
    mallopt(MMAP_THRESHOLD, LARGEST)
    mallopt(TRIM_THRESHOLD, LARGEST)
