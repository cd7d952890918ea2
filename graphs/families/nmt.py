"""Placeto's NMT: 32 graphs of a two-layer translation model, of varying sentence length and batch size.

Addanki et al. (2019), section 4.1, vary length and batch, and do not give the values: these are ours. Half of the
graphs are for training.
"""

from graphs.families import Model, gnmt

CONFIGURATIONS = {"nmt": "steps=10,batch=64"}
TRAIN = (
    "steps=4,batch=32", "steps=4,batch=64", "steps=5,batch=32", "steps=5,batch=64", "steps=6,batch=32",
    "steps=6,batch=64", "steps=7,batch=32", "steps=7,batch=64", "steps=8,batch=32", "steps=8,batch=64",
    "steps=9,batch=32", "steps=9,batch=64", "steps=10,batch=32", "steps=10,batch=64", "steps=12,batch=32",
    "steps=12,batch=64",
)  # fmt: skip
TEST = (
    "steps=4,batch=48", "steps=4,batch=96", "steps=5,batch=48", "steps=5,batch=96", "steps=6,batch=48",
    "steps=6,batch=96", "steps=7,batch=48", "steps=7,batch=96", "steps=8,batch=48", "steps=8,batch=96",
    "steps=9,batch=48", "steps=9,batch=96", "steps=10,batch=48", "steps=10,batch=96", "steps=12,batch=48",
    "steps=12,batch=96",
)  # fmt: skip


def build(*, layers: int = 2, steps: int = 8, hidden: int = 512, batch: int = 64, vocabulary: int = 32000) -> Model:
    """The model and its example inputs: source and target sentences, each (batch, steps)."""
    return gnmt.build(layers=layers, steps=steps, hidden=hidden, batch=batch, vocabulary=vocabulary)
