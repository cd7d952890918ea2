"""Whatever number a knob of a family is given: a training step comes out, or one sentence."""

import inspect
import re

import pytest

from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from tests.graphs.test_joint_graph import SPECS

COUNTS = {"blocks", "breadth", "depth", "layers", "repeat", "stacks", "steps"}  # a huge one takes forever
NUMBERS = [
    (family, knob)
    for family in by_name.names("graphs.families")
    for knob, parameter in inspect.signature(by_name.module("graphs.families", family).build).parameters.items()
    if type(parameter.default) is int
]


def spec_with(family: str, knob: str, value: int) -> str:
    knobs = by_name.parse(f"{family}:{SPECS[family]}")[1] | {knob: str(value)}
    return f"{family}:{','.join(f'{key}={text}' for key, text in knobs.items())}"


def refused(spec: str) -> str:
    """The sentence with which it is refused, or "" for one that is captured."""
    try:
        module, args = by_name.build("graphs.families", spec)
        step = training_step(capture(module, args, name=spec))
    except InputError as error:
        return str(error)
    assert step.is_training
    assert step.flops.sum() > 0
    return ""


@pytest.mark.parametrize(("family", "knob"), NUMBERS)
def test_what_is_negative_is_refused_before_anything_is_built(family: str, knob: str) -> None:
    with pytest.raises(InputError, match=f"expected {knob} to be at least [01], got -1"):
        by_name.check("graphs.families", spec_with(family, knob, -1))


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("amoebanet:layers=7", "amoebanet: expected layers to be a multiple of the stages, 3, got 7"),
        ("amoebanet:filters=12", "amoebanet: expected filters to be a multiple of .*, 8, got 12"),
        ("bert:heads=7", "bert: expected width to be a multiple of heads, 7, got 768"),
        ("llama:width=48,heads=16", "llama: expected width to be a multiple of twice heads, 32, got 48"),
        ("nasnet:filters=7", "nasnet: expected filters to be a multiple of .*, 4, got 7"),
        ("resnet:groups=3", "'resnet:groups=3' cannot be built: ValueError: in_channels must be divisible by groups"),
        ("resnet:layers=7", "resnet has no 7 layers; there are: .*50"),
        ("rnnlm:layers=0", "expected layers to be at least 1, got 0"),
        ("transformer:width=7", "transformer: expected width to be a multiple of heads, 8, got 7"),
        ("transformer_xl:heads=3", "transformer_xl: expected width to be a multiple of heads, 3, got 512"),
        pytest.param(
            "inception_v3:image=75",
            "inception_v3:image=75: the module fails on its example inputs: .*size is too small",
            marks=pytest.mark.slow,
        ),
        ("vgg:image=31", "vgg: expected image to be at least 32, got 31"),
        ("vit:heads=5", "vit: expected width to be a multiple of heads, 5, got 768"),
        ("vit:image=100", "vit: expected image to be a multiple of the side of a patch, 16, got 100"),
        ("xlnet:heads=7", "xlnet: expected width to be a multiple of heads, 7, got 768"),
    ],
)
def test_a_familys_own_conditions_are_sentences(spec: str, sentence: str) -> None:
    found = refused(spec)
    assert re.search(sentence, found)
    assert "\n" not in found


@pytest.mark.slow
@pytest.mark.parametrize(("family", "knob"), NUMBERS)
def test_any_number_gives_a_training_step_or_a_sentence(family: str, knob: str) -> None:
    for value in (0, 1, 2, 3, 7) if knob in COUNTS else (0, 1, 2, 3, 7, 10**12):
        assert "\n" not in refused(spec_with(family, knob, value))
