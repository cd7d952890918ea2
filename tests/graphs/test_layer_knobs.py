"""What layers of Transformers compute, however they do it: the same numbers, by the operations that are asked for."""

import re
from collections import Counter

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.capture.forward import capture
from graphs.families._layers import WAYS, Attention, LayerKnobs, NewGelu
from graphs.foundation import by_name
from graphs.foundation.errors import InputError
from tests.graphs.joint_graph import joint_graph, ours, theirs

WIDTH, HEADS, LENGTH = 16, 4, 6
SMALL = f"layers=2,width={WIDTH},heads={HEADS},sequence={LENGTH},batch=2"


def attention(way: str = "scaled", *, causal: bool = True, kv_heads: int = 0, separate: bool = False) -> Attention:
    torch.manual_seed(0)
    knobs = LayerKnobs("test", WIDTH, HEADS, kv_heads=kv_heads, attention=way, separate=separate, causal=causal)
    return Attention(knobs)


def output(module: Attention) -> Tensor:
    x = torch.randn(2, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1))
    made: Tensor = module(x, module.knobs.mask(LENGTH))
    return made


def kinds(spec: str) -> Counter[str]:
    graph = capture(*by_name.build("graphs.families", spec), name=spec)
    return Counter(kind.removeprefix("aten.") for kind in graph.kinds)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_computes_what_pytorchs_module_does(way: str, causal: bool) -> None:
    module = attention(way, causal=causal)
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    joint, out = module.query_key_value, module.out
    weights = {"in_proj_weight": joint.weight, "in_proj_bias": joint.bias}
    theirs.load_state_dict(weights | {"out_proj.weight": out.weight, "out_proj.bias": out.bias})
    x = torch.randn(2, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1))
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1) if causal else None
    torch.testing.assert_close(output(module), theirs(x, x, x, attn_mask=mask, need_weights=False)[0])


@pytest.mark.parametrize("way", WAYS)
def test_heads_that_share_keys_and_values_have_them_repeated(way: str) -> None:
    shared, whole = attention(way, kv_heads=2, separate=True), attention(way, separate=True)
    weights = dict(shared.state_dict())
    for name in [name for name in weights if name.startswith(("key.", "value."))]:
        weights[name] = weights[name].unflatten(0, (2, -1)).repeat_interleave(2, 0).flatten(0, 1)
    whole.load_state_dict(weights)
    torch.testing.assert_close(output(shared), output(whole))


def test_products_of_their_own_have_the_rows_of_the_joint_one() -> None:
    separate, joint = attention(kv_heads=2, separate=True), attention(kv_heads=2)
    for name in ("weight", "bias"):
        parts = [getattr(getattr(separate, part), name) for part in ("query", "key", "value")]
        getattr(joint.query_key_value, name).data = torch.cat(parts)
    joint.out.load_state_dict(separate.out.state_dict())
    torch.testing.assert_close(output(separate), output(joint))


def test_the_eager_gelu_is_eight_operations_and_the_approximation_with_tanh() -> None:
    x = torch.linspace(-3.0, 3.0, 50)
    torch.testing.assert_close(NewGelu()(x), F.gelu(x, approximate="tanh"))
    plain, eager = (kinds(f"transformer:{SMALL},activation={word}") for word in ("gelu", "gelu_new"))
    assert (plain - eager, (eager - plain).total()) == (Counter({"gelu": 2}), 2 * 8)


@pytest.mark.parametrize(
    ("family", "dropouts"),
    [("transformer", 1 + 2 * 3), ("bert", 1 + 2 * 3), ("bert:classes=2", 1 + 2 * 3 + 1)],
)
def test_embeddings_weights_of_attention_and_both_branches_are_dropped(family: str, dropouts: int) -> None:
    family, _, more = family.partition(":")
    spec = f"{family}:{SMALL}" + (f",{more}" if more else "")
    assert kinds(spec)["native_dropout"] == 0
    assert kinds(f"{spec},dropout=0.1")["native_dropout"] == dropouts
    assert kinds(f"{spec},dropout=0.1,attention=sdpa")["native_dropout"] == dropouts - 2  # it drops weights itself


@pytest.mark.parametrize("way", WAYS)
def test_weights_of_attention_are_as_they_are_if_that_is_asked_for(way: str) -> None:
    spec = f"transformer:{SMALL},dropout=0.1,attention_dropout=false,attention={way}"
    assert kinds(spec)["native_dropout"] == 1 + 2 * 2
    knobs = LayerKnobs("test", WIDTH, HEADS, dropout=0.5, attention=way, attention_dropout=False)
    module = Attention(knobs)
    module.out_dropout = nn.Identity()
    torch.testing.assert_close(output(module), output(module.eval()))  # nothing is drawn


@pytest.mark.parametrize(
    ("way", "passes"),  # over the scores, between the products
    [
        ("scaled", ("add", "_softmax")),
        ("eager", ("div", "where", "_softmax")),
        ("megatron", ("_softmax",)),
        ("sdpa", ()),
    ],
)
def test_each_way_passes_over_the_scores_as_often_as_it_should(way: str, passes: tuple[str, ...]) -> None:
    spec = f"transformer:layers=1,width={WIDTH},heads={HEADS},sequence=7,batch=2,vocabulary=11,attention={way}"
    graph = capture(*by_name.build("graphs.families", spec), name=spec)
    assert graph.signatures is not None
    scores = [op for op in range(len(graph)) if graph.output_bytes[op] == 2 * HEADS * 7 * 7 * 4]
    found = tuple(graph.kinds[op].removeprefix("aten.") for op in scores)
    assert tuple(kind for kind in found if "bmm" not in kind) == passes


@pytest.mark.parametrize("knobs", ["attention=eager,activation=gelu_new", "attention=megatron,kv_heads=2,inner=20"])
def test_its_backward_pass_is_that_of_pytorch(knobs: str) -> None:
    spec = f"transformer:{SMALL},vocabulary=11,tied=true,dropout=0.1,{knobs}"
    joint = joint_graph(*by_name.build("graphs.families", spec), name=spec)
    assert ours(joint).towards == theirs(joint).towards
    assert ours(joint).flops == theirs(joint).flops
    assert ours(joint).saved == theirs(joint).saved


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ("attention=flash", "transformer: unknown attention 'flash'; there are: scaled, eager, megatron, sdpa"),
        ("activation=tanh", "transformer: unknown activation 'tanh'; there are: gelu, gelu_new, relu"),
        ("dropout=1.5", "transformer: expected dropout to be at least 0 and less than 1, got 1.5"),
        ("kv_heads=3", "transformer: expected heads to be a multiple of kv_heads, 3, got 4"),
    ],
)
def test_what_cannot_be_is_refused(knobs: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        by_name.build("graphs.families", f"transformer:{SMALL},{knobs}")
