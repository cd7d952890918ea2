"""Files that PyTorch's profilers write, which are no graphs yet: what to make of them."""

from __future__ import annotations

import json
from pathlib import Path

from graphs.foundation.documents import read_file

_CONVERTED = (
    "MLCommons' chakra_converter makes a trace of it that is one, with the times: join it with the profiler's by "
    "chakra_trace_link first, and give the *.et file that chakra_converter PyTorch writes"
)


def what_it_is(path: Path) -> str:
    """A sentence for a JSON file of PyTorch's ExecutionTraceObserver, or of its profiler; empty for any other file."""
    try:
        content = json.loads(read_file(path, ""))
    except (ValueError, RecursionError):
        return ""
    if not isinstance(content, dict):
        return ""
    schema = content.get("schema")
    if isinstance(schema, str) and not schema.startswith("placelab") and isinstance(content.get("nodes"), list):
        return f"{path} is an execution trace of PyTorch's ExecutionTraceObserver and no graph file; {_CONVERTED}"
    if "traceEvents" in content:
        return (
            f"{path} is a timeline of PyTorch's profiler (Chrome's trace format) and no graph file: it does not say "
            "what depends on what; record an ExecutionTraceObserver's trace next to it, or capture the model itself"
        )
    return ""
