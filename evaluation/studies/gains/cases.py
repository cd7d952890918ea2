"""The cases: models that gain on two devices, and placers that find one device for each op."""

from __future__ import annotations

from graphs.problem import DEFAULT_ORDER, PROGRAM

CLUSTER = "v100:devices=2"
MODELS = {
    "Transformer": "transformer:layers=4,width=1024,batch=32",
    "BERT": "bert:layers=4,batch=32",
    "Inception-v3": "inception_v3:batch=32",
    "NASNet": "nasnet:batch=32",
    "RNN language model": "rnnlm:layers=4,steps=8",
    "NMT": "nmt:layers=2,steps=8",
}
PLANS = (("annealing", DEFAULT_ORDER), ("annealing", PROGRAM), ("heft", DEFAULT_ORDER), ("m_etf", DEFAULT_ORDER))
"""Placers, and the order that the simulator has meanwhile."""

IN_PROCESSES = {
    "Transformer": "transformer:layers=4,width=256,heads=4,sequence=64,batch=16",
    "RNN language model": "rnnlm:layers=2,steps=6,hidden=512,batch=64",
}
"""Small enough for processors."""
