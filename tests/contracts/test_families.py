"""What every family of models promises, whichever it is."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from graphs.capture.forward import capture
from graphs.capture.training_step import training_step
from graphs.foundation import by_name
from graphs.op_graph import OpGraph, Phase
from tests.drawn import examples
from tests.graphs.test_joint_graph import SPECS

NAMES = by_name.built_in("graphs.families")
SMALL = {  # knobs that make each family's configurations quick to capture; `make graphs` captures them in full
    "amoebanet": "layers=3", "bert": "layers=2", "gnmt": "steps=2", "llama": "layers=2", "nasnet": "repeat=1",
    "nmt": "steps=2", "resnet": "image=32,batch=2", "rnnlm": "steps=2", "transformer": "layers=2",
    "transformer_xl": "sequence=32", "vit": "layers=2", "wavenet": "layers=4", "xlnet": "layers=2",
}  # fmt: skip

LARGE = dict.fromkeys(("amoebanet", "inception_v3", "nasnet"), pytest.mark.slow)  # whose operations others have too

RELEASED = {  # parameters as released: by Meta, OpenAI, torchvision and timm; BERT in transformers' classes
    "llama:llama-7b": 6_738_415_616,
    "llama:llama-13b": 13_015_864_320,
    "llama:layers=32,width=4096,heads=32,kv_heads=8,inner=14336,vocabulary=128256": 8_030_261_248,  # Llama 3.1 8B
    "transformer:gpt2": 124_439_808,
    "transformer:gpt2-medium": 354_823_168,
    "transformer:gpt2-xl": 1_557_611_200,
    "bert:bert-base": 109_514_298,
    "bert:bert-large": 335_174_458,
    "bert:bert-large,classes=2": 335_143_938,
    "vgg:vgg-19": 143_667_240,
    "vit:vit-base": 86_567_656,
    "vit:vit-large": 304_326_632,
    "resnet:resnet-50": 25_557_032,
    "resnet:resnet-152": 60_192_808,
    "resnet:se-resnext-50": 27_559_896,
    "resnet:se-resnext-101": 48_955_416,
    "inception_v3:inception-v3": 27_161_264,
}


def knobs(family: str, which: str) -> list[dict[str, str]]:
    listed: tuple[str, ...] = by_name.constants("graphs.families", family)[which]
    return [by_name.parse(f"{family}:{text}")[1] for text in listed]


@pytest.fixture(scope="module", params=NAMES)
def family(request: pytest.FixtureRequest) -> str:
    """Each family in turn."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def smallest(family: str) -> OpGraph:
    """The training step of the first spec to train on."""
    listed = by_name.constants("graphs.families", family)["TRAIN"]
    spec = f"{family}:{listed[0]}"
    module, args = by_name.build("graphs.families", spec)
    assert all(tensor.is_meta for tensor in (*module.parameters(), *module.buffers(), *args))  # nothing is allocated
    return training_step(capture(module, args, name=spec))


def test_its_first_line_says_what_it_is(family: str) -> None:
    assert 20 < len(by_name.constants("graphs.families", family)["doc"]) < 120


def test_its_specs_are_knobs_that_it_has(family: str) -> None:
    parameters = inspect.signature(by_name.module("graphs.families", family).build).parameters
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in parameters.values())
    for spec in knobs(family, "TRAIN") + knobs(family, "TEST"):
        assert spec.keys() <= parameters.keys()
        assert all(value.isdigit() for value in spec.values())


def test_no_test_graph_is_trained_on(family: str) -> None:
    train, test = knobs(family, "TRAIN"), knobs(family, "TEST")
    assert len(train) >= 6
    assert len(test) >= 3
    assert not [spec for spec in test if spec in train]


def test_its_configurations_have_the_parameters_that_were_published(family: str) -> None:
    constants = by_name.constants("graphs.families", family)
    assert constants["CONFIGURATIONS"]
    for name, published in constants.get("PARAMETERS", {}).items():
        module, _ = by_name.build("graphs.families", f"{family}:{name}")
        assert sum(parameter.numel() for parameter in module.parameters()) == pytest.approx(published, rel=0.02)


def test_released_models_have_their_very_parameters() -> None:
    for spec, count in RELEASED.items():
        module, _ = by_name.build("graphs.families", spec)
        assert sum(parameter.numel() for parameter in module.parameters()) == count, spec


@pytest.mark.parametrize("name", ["amoebanet", "nasnet"])
def test_cells_only_convolve_normalise_pool_add_and_join(name: str) -> None:
    graph = capture(*by_name.build("graphs.families", f"{name}:{SPECS[name]}"), name=name)
    kinds = {kind.removeprefix("aten.").partition(".")[0] for kind in graph.kinds}
    assert kinds <= {
        "convolution", "_native_batch_norm_legit_functional", "relu", "avg_pool2d", "max_pool2d_with_indices", "add",
        "cat", "mean", "addmm", "cross_entropy_loss", "constant_pad_nd", "slice", "_log_softmax", "nll_loss_forward",
    }, kinds  # fmt: skip
    assert {"convolution", "add", "cat"} <= kinds


@pytest.mark.drawn
def test_each_configuration_is_captured(family: str) -> None:
    """Briefly the last of each family; the others are of other sizes."""
    configurations = list(by_name.constants("graphs.families", family)["CONFIGURATIONS"])
    for name in examples(configurations, configurations[-1:]):
        spec = ",".join([f"{family}:{name}", *([SMALL[family]] if family in SMALL else [])])
        module, args = by_name.build("graphs.families", spec)
        graph = capture(module, args, name=spec)
        trained = sum(parameter.numel() * parameter.element_size() for parameter in module.parameters())
        assert graph.weights.sum() == pytest.approx(trained, rel=0.02)  # the last layer of WaveNet sends nothing on
        assert graph.flops.sum() > 0


def test_it_is_a_training_step_of_a_real_size(smallest: OpGraph) -> None:
    assert smallest.is_training
    assert 100 < len(smallest) < 8000
    assert smallest.flops.sum() > 1e9
    assert len(smallest.weights) > 5


def test_a_step_takes_three_times_the_flops_of_the_forward_pass(smallest: OpGraph) -> None:
    """But for what reads only the batch: nothing is sent back to that."""
    forward = smallest.phase == Phase.FORWARD
    trained = np.isin(np.arange(len(smallest)), smallest.weight_uses[:, 0])  # or after such an op
    first = forward.copy()
    offsets, in_edges = smallest.predecessors
    for op in smallest.topological_order:
        producers = smallest.edges[in_edges[offsets[op] : offsets[op + 1]], 0]
        first[op] &= not trained[producers].any()
        trained[op] |= trained[producers].any()
    expected = 3 * smallest.flops[forward].sum() - smallest.flops[first].sum()
    assert smallest.flops.sum() == pytest.approx(expected, rel=0.02)


def test_its_modules_are_in_the_names(smallest: OpGraph) -> None:
    paths = [name.partition("/")[0] for name in smallest.names if "/" in name]
    assert len(paths) > len(smallest) / 2
    assert any(part.isdigit() for path in paths for part in path.split("."))


def test_every_weight_is_updated(smallest: OpGraph) -> None:
    updated = set(smallest.mirror[smallest.phase == Phase.UPDATE].tolist())
    weights = {weight for op, weight in smallest.weight_uses.tolist() if op in updated}
    assert weights == set(range(len(smallest.weights)))


@pytest.mark.parametrize("family", [pytest.param(each, marks=LARGE.get(each, ())) for each in NAMES])
def test_it_is_the_same_every_time(family: str) -> None:
    built = (by_name.build("graphs.families", f"{family}:{SPECS[family]}") for _ in range(2))
    assert len({training_step(capture(module, args, name=family)).fingerprint for module, args in built}) == 1
