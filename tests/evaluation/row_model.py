"""A model that is a row of equal layers, for tests of exports."""

import json
import re
from dataclasses import replace

import torch
from torch import Tensor, nn

import placelab
from graphs.problem import Problem
from graphs.runtime import IDEAL

WORDS = torch.zeros(2, 8, dtype=torch.long)


class Residual(nn.Module):
    """A layer whose own code adds what it reads to what its parts make."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.down(self.up(x))
        return y


class Row(nn.Module):
    """An embedding, five layers and a head that has its weight; the last module is called first."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.layers = nn.ModuleList(Residual() for _ in range(5))
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.words.weight
        self.scale = nn.Tanh()

    def forward(self, words: Tensor) -> Tensor:
        x = self.scale(self.words(words)) * 2
        for layer in self.layers:
            x = layer(x)
        logits: Tensor = self.head(x)
        return logits


def row_on_four(known: list[Problem] = []) -> Problem:  # noqa: B006 - captured once
    if not known:
        placed = placelab.place((Row(), (WORDS,)), cluster="p100x4", placer="single_device", groups=None)
        known.append(replace(placed.problem, runtime=IDEAL))  # which any cluster can have
    return known[0]


def stages_in(to: str, text: str) -> str:
    """Of what an export wrote, the part that says which layers are where; all of it for programs that take no more."""
    if to == "megatron":
        layout: str = re.findall("layout '(.*)'|$", text)[0]
        return layout
    if to == "torchtitan":
        parts: str = re.findall("module_fqns_per_model_part = (.*)|$", text)[0]
        return parts
    if to == "deepspeed":
        pipeline = json.loads(text).get("pipeline", {})
        return json.dumps({key: pipeline[key] for key in ("parts", "layers") if key in pipeline})
    return text
