"""The number of threads that torch computes with: one, unless the user asks for more.

The matrices of placement policies are small. Sharing them among threads costs more than it saves: fine-tuning takes
ten to thirty times as long with two threads as with one.
"""

import os
import sys
import threading

from graphs.foundation.errors import InputError

VARIABLE = "PLACELAB_THREADS"  # sets another number
OF_OPENMP = os.environ.get("OMP_NUM_THREADS", "")  # the user's: dask sets it later in a process that starts others
_done = threading.local()  # has `limited` where it acted: torch keeps a number for each thread


def limit_torch_threads() -> None:
    """Let torch compute with one thread, or with as many as PLACELAB_THREADS says, when called from this thread.

    Acts once in each, so that a number set afterwards stays, and not where the user has set OMP_NUM_THREADS. Does
    nothing before torch is imported, and does not import it: code that computes with torch calls this.
    Raises InputError if PLACELAB_THREADS is no number of threads.
    """
    text = os.environ.get(VARIABLE, "")
    if text and not (text.isdecimal() and int(text) > 0):
        raise InputError(f"the environment variable {VARIABLE} is {text!r}; expected a number of threads, such as 1")
    torch = sys.modules.get("torch")
    if getattr(_done, "limited", False) or torch is None:
        return
    if text or not OF_OPENMP:
        torch.set_num_threads(int(text or 1))
    _done.limited = True
