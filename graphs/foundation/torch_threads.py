"""The number of threads that torch computes with: one, unless the user asks for more.

The matrices of placement policies are small. Sharing them among threads costs more than it saves: fine-tuning takes
ten to thirty times as long with two threads as with one.
"""

import os
import sys

from graphs.foundation.errors import InputError

VARIABLE = "PLACELAB_THREADS"  # sets another number
_limited = False


def limit_torch_threads() -> None:
    """Let torch compute with one thread in this process, or with as many as PLACELAB_THREADS says.

    Acts once, so that a number set afterwards stays, and not where OMP_NUM_THREADS is set. Does nothing before torch is
    imported, and does not import it: code that computes with torch calls this.
    Raises InputError if PLACELAB_THREADS is no number of threads.
    """
    global _limited
    text = os.environ.get(VARIABLE, "")
    if text and not (text.isdecimal() and int(text) > 0):
        raise InputError(f"the environment variable {VARIABLE} is {text!r}; expected a number of threads, such as 1")
    torch = sys.modules.get("torch")
    if _limited or torch is None:
        return
    if text or not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(text or 1))
    _limited = True
