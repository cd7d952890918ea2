"""The summary of a step as rows of text, for tables of the terminal and of pages."""

from evaluation.records.formatting import memory, seconds, share
from evaluation.tables.step_summary import StepSummary, TimeSpent

Rows = tuple[list[str], list[tuple[str, ...]]]  # heads, and cells under them


def time_rows(time: TimeSpent) -> Rows:
    """Of each device, the shares of the step by what it spends them on, and how much it sends."""
    columns = zip(time.devices, time.shares.tolist(), time.sent.tolist(), strict=True)
    return ["device", *time.names, "sends"], [
        (device, *map(share, shares), memory(sent)) for device, shares, sent in columns
    ]


def sent_rows(summary: StepSummary) -> Rows:
    """Of each of the largest outputs that are sent: what, from where to where, how much, and how long it takes."""
    return ["largest transfers", "from", "to", "size", "takes"], [
        (f"{sent.what} ({sent.times} times)" if sent.times > 1 else sent.what, sent.source, sent.destination,
         memory(sent.size), seconds(sent.seconds))
        for sent in summary.sent
    ]  # fmt: skip


def held_rows(summary: StepSummary) -> Rows:
    """Of each of the largest tensors on the device with the least room: which it is, what it is, how much it takes."""
    return [f"largest in memory of {summary.fullest}", "what", "size"], [
        (held.what, held.kind, memory(held.size)) for held in summary.held
    ]
