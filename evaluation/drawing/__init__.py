"""Figures: step times, learning curves, timelines, graphs."""

import contextlib
import os
import sys

from graphs.foundation.extras import check_extra

check_extra("charts", "a drawing")

if "matplotlib" not in sys.modules:
    # MPLBACKEND chooses windows, of which figures open none; matplotlib cannot be imported where it names no backend
    backend = os.environ.pop("MPLBACKEND", "")
    import matplotlib as mpl

    if backend:
        os.environ["MPLBACKEND"] = backend
        with contextlib.suppress(ValueError):
            mpl.rcParams["backend"] = backend
