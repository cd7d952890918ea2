"""What is published of PipeTransformer (He et al. 2021): figures to be compared with, and inputs of the study."""

from __future__ import annotations

FREEZE, NO_REPLICAS, NO_CACHE, ALL = VARIANTS = (
    "freezing alone", "without AutoDP", "without AutoCache", "all parts"
)  # fmt: skip
SPEEDUPS = {FREEZE: 0.95, NO_REPLICAS: 1.26, NO_CACHE: 2.27, ALL: 2.83}  # over training without freezing
BY_ALPHA = {1 / 5: 2.04, 1 / 4: 2.44, 1 / 3: 2.83, 2 / 5: 3.29, 1 / 2: 3.86}  # with all parts
ALPHA = 1 / 3  # of the other figures
EPOCHS = 10
FIRST = 8  # GPUs of a pipeline at the beginning
BERT_SPEEDUP = 2.10  # BERT-large on SQuAD 1.1

# Seconds of all epochs without freezing, and with all parts
TOTALS = {"ImageNet": (26.5 * 3600.0, 9 * 3600.0 + 21 * 60), "CIFAR-100": (35 * 60.0 + 6, 12 * 60.0 + 23)}

# Images per second by micro-batches for each GPU of a pipeline of 8, read off figure 11; taken as those of both
# pipelines of the testbed together, since the log of the released program says half as many of one
THROUGHPUT = {1: 368.0, 2: 410.0, 3: 386.0, 4: 340.0, 5: 298.0, 6: 286.0}

# Seconds that the log of the released program says a change takes, by the GPUs of a pipeline then
TO_GPU = {8: 16.6, 4: 8.3, 2: 3.8}  # weights from the CPU's memory
REBUILD = {8: 5.0, 4: 23.0, 2: 12.0}  # of DistributedDataParallel


def transition_seconds(devices: int) -> float:
    """Seconds that a change to pipelines of so many GPUs takes; of a single one, which the log lacks, as of two."""
    logged = max(devices, min(TO_GPU))
    return TO_GPU[logged] + REBUILD[logged]
