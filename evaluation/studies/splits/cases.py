"""The cases: six models on eight devices of one server, and a model that fits on no single one of them."""

from __future__ import annotations

from envs.costs.costs import AUTO, timed
from graphs.load import load_cluster, load_graph
from graphs.problem import Problem

CLUSTER = "p100:devices=8"
MODELS = {
    "VGG-19": "vgg:vgg-19,batch=32",
    "ResNet-50": "resnet:resnet-50,batch=64",
    "GPT-2": "transformer:gpt2,batch=32",
    "Llama": "llama:layers=12,width=1024,heads=16,inner=2752,sequence=512,batch=32",
    "BERT": "bert:bert-large,batch=32",
    "RNN language model": "rnnlm:layers=2,steps=20,hidden=1024,batch=64",
}
LARGE = {"Llama, 1.3 billion": "llama:layers=24,width=2048,heads=16,inner=5504,sequence=512,batch=16"}


def problem_of(spec: str, cluster: str) -> Problem:
    """A captured model on a cluster."""
    return timed(Problem(load_graph(spec, with_law=True), load_cluster(cluster)), AUTO)
