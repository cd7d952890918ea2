"""Models of the package transformers, built from a configuration, without weights, and captured as they are."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from graphs.capture import tracing
from graphs.capture.exporting import export
from graphs.capture.forward import Builder, capture
from graphs.capture.recording import record
from graphs.capture.training_step import training_step
from graphs.families._layers import WAYS, LayerKnobs
from graphs.families.llama import VOCABULARY, Llama
from graphs.op_graph import OpGraph

transformers = pytest.importorskip("transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

SLOW = pytest.mark.slow  # torch.export takes seconds for each
BATCH, LENGTH, WIDTH, LAYERS, HEADS, INNER, WORDS = 2, 16, 32, 2, 4, 64, 100
FLOAT = 4  # bytes
SHARED = {
    "vocab_size": WORDS, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "intermediate_size": INNER,
}  # fmt: skip
SDPA = torch.ops.aten.scaled_dot_product_attention.default
Model = tuple[nn.Module, dict[str, object]]


def tokens(length: int = LENGTH) -> Tensor:
    return torch.zeros(BATCH, length, dtype=torch.long)


def bert() -> Model:
    config = transformers.BertConfig(**SHARED)
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    return transformers.BertModel(config), {"input_ids": tokens(), "attention_mask": mask}


def gpt2() -> Model:
    config = transformers.GPT2Config(
        vocab_size=WORDS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=LENGTH, use_cache=False,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config), {"input_ids": tokens()}


def t5() -> Model:
    config = transformers.T5Config(
        vocab_size=WORDS, d_model=WIDTH, d_kv=8, d_ff=INNER, num_layers=1, num_heads=HEADS, use_cache=False
    )
    inputs: dict[str, object] = {"input_ids": tokens(), "decoder_input_ids": tokens(LENGTH // 2)}
    return transformers.T5ForConditionalGeneration(config), inputs


def vit() -> Model:
    config = transformers.ViTConfig(**SHARED, image_size=32, patch_size=8)
    return transformers.ViTModel(config), {"pixel_values": torch.zeros(BATCH, 3, 32, 32)}


def llama() -> Model:
    config = transformers.LlamaConfig(**SHARED, num_key_value_heads=2, use_cache=False)
    return transformers.LlamaForCausalLM(config), {"input_ids": tokens()}


def mixtral() -> Model:
    config = transformers.MixtralConfig(**SHARED, num_key_value_heads=2, num_local_experts=4, use_cache=False)
    return transformers.MixtralForCausalLM(config), {"input_ids": tokens()}


def built(make: Callable[[], Model]) -> Model:
    """A model on the meta device, where its weights have shapes alone."""
    with torch.device("meta"):
        module, inputs = make()
    return module.eval(), inputs


def captured(make: Callable[[], Model]) -> OpGraph:
    module, inputs = built(make)
    return capture(module, (), inputs, name=make.__name__)


@pytest.mark.parametrize("make", [bert, gpt2, t5, vit, llama, mixtral])
def test_a_model_is_captured_with_all_its_parameters_and_trained(make: Callable[[], Model]) -> None:
    module, inputs = built(make)
    graph = capture(module, (), inputs, name=make.__name__)
    read = {id(weight): weight.numel() * FLOAT for weight in module.parameters()}  # a shared one comes once
    assert sorted(graph.weights) == sorted(read.values())
    paths = {name.rpartition("/")[0] for name in graph.names}
    assert paths <= {path for path, _ in module.named_modules()}
    readers = [graph.names[op] for op in graph.weight_uses[:, 0]]
    assert all("/" in name for name in readers)
    assert len({name.rpartition("/")[0] for name in readers}) > 2 * LAYERS
    step = training_step(graph)
    assert step.is_training
    assert step.flops.sum() == pytest.approx(3 * graph.flops.sum(), rel=0.25)


@pytest.mark.parametrize("make", [bert, gpt2, t5, vit, llama])
def test_the_flops_of_a_step_are_those_that_pytorch_counts(make: Callable[[], Model]) -> None:
    module, inputs = make()
    module.eval().set_attn_implementation("eager")  # type: ignore[operator]  # products, whatever the device
    with FlopCounterMode(display=False) as counter:
        returned = module(**inputs)
        outputs = [each for each in tree_leaves(tuple(returned.values())) if isinstance(each, Tensor)]
        torch.stack([each.sum() for each in outputs if each.requires_grad]).sum().backward()  # type: ignore[no-untyped-call]
    step = training_step(capture(module, (), inputs, name=make.__name__))
    assert step.flops.sum() == counter.get_total_flops()


@pytest.mark.parametrize("make", [bert, mixtral, *(pytest.param(each, marks=SLOW) for each in (gpt2, t5, vit, llama))])
def test_a_model_is_recorded_as_it_is_exported(make: Callable[[], Model], monkeypatch: pytest.MonkeyPatch) -> None:
    """For a compiler, that is: eager code may leave out masks, depending on their values. On the CPU as on meta."""
    monkeypatch.setitem(SHARED, "num_hidden_layers", 1)
    real, real_inputs = make()
    module, inputs = built(make)
    with tracing.quiet():
        exported = Builder(export(real.eval(), (), real_inputs), make.__name__).build()
        recorded = Builder(record(module, (), inputs, compiling=[type(module)]), make.__name__).build()
    monkeypatch.setattr(tracing, "export", None)  # which is not called
    assert all(call is not None for call in captured(make).calls)
    assert recorded.fingerprint == exported.fingerprint


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("make", [gpt2, llama])
def test_a_model_is_recorded_as_eager_code_runs(make: Callable[[], Model], caching: bool, masked: bool) -> None:
    """By its kernels: attention without a mask, since none leaves anything out. The oracle computes for real."""
    mask = {"attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.long)} if masked else {}
    module, inputs = make()
    inputs = inputs | mask | {"use_cache": caching}
    graphs = [Builder(record(module.eval(), (), inputs, by_values=each), "test").build() for each in (True, False)]
    assert graphs[0].fingerprint == graphs[1].fingerprint
    on_meta = built(make)[0]
    for each in (module, on_meta):
        traced = tracing.trace(each, (), inputs, name="test")
        attention = [node.args[3:6] for node in traced.nodes if node.target is SDPA]
        assert attention == [(None, 0.0, True)] * LAYERS  # no mask, no dropout, causal
        assert [answer.data for answer in traced.answers] == ["the example"] * masked


def test_a_mask_without_values_is_one_of_random_data(caplog: pytest.LogCaptureFixture) -> None:
    module, inputs = built(llama)
    with torch.device("meta"):
        mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    traced = tracing.trace(module, (), inputs | {"attention_mask": mask}, name="test")
    assert all(node.args[3] is not None for node in traced.nodes if node.target is SDPA)
    assert "masking_utils.py:" in caplog.text
    assert caplog.text.count("those of random data are taken") == 1


def test_only_the_experts_are_told_that_a_compiler_runs_them() -> None:
    module, inputs = built(mixtral)
    program = tracing.trace(module, (), inputs, name="test")
    assert [node.args[3:6] for node in program.nodes if node.target is SDPA] == [(None, 0.0, True)] * LAYERS


def test_the_products_of_bert_by_hand() -> None:
    graph = captured(bert)
    rows = BATCH * LENGTH
    projections = 4 * WIDTH * WIDTH + 2 * WIDTH * INNER
    attention = 2 * LENGTH * WIDTH  # queries by keys, and scores by values
    pooler = BATCH * WIDTH * WIDTH  # of the first word alone
    assert graph.flops.sum() == 2 * (LAYERS * rows * (projections + attention) + pooler)
    assert graph.kinds.count("aten.scaled_dot_product_attention") == LAYERS


RENAMED = {
    "embed_tokens": "tokens", "lm_head": "head", "self_attn": "attention", "mlp.": "", "_proj": "",
    "input_layernorm": "attention_norm", "post_attention_layernorm": "feed_forward_norm", "model.": "",
    ".q.": ".query.", ".k.": ".key.", ".v.": ".value.", ".o.": ".out.",
}  # fmt: skip


@pytest.mark.parametrize("kv_heads", [HEADS, 1])
@pytest.mark.parametrize("way", WAYS)
def test_the_llama_that_is_a_family_computes_what_the_package_does(way: str, kv_heads: int) -> None:
    config = SHARED | {"vocab_size": VOCABULARY, "num_key_value_heads": kv_heads}
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    knobs = LayerKnobs("llama", WIDTH, HEADS, INNER, kv_heads, attention=way, separate=True)
    ours = Llama(LAYERS, knobs, LENGTH, VOCABULARY)
    weights = {}
    for name, tensor in theirs.state_dict().items():
        for old, new in RENAMED.items():
            name = name.replace(old, new)
        weights[name] = tensor
    positions = torch.arange(LENGTH)
    cosine, sine = theirs.model.rotary_emb(torch.zeros(1), positions[None])
    mask = torch.zeros(LENGTH, LENGTH).masked_fill(positions[:, None] < positions, -torch.inf)
    ours.load_state_dict(weights | {"cosine": cosine[0], "sine": sine[0], "mask": mask})
    words, targets = torch.randint(VOCABULARY, (2, BATCH, LENGTH), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = nn.functional.cross_entropy(theirs(words).logits.flatten(0, 1), targets.flatten())
        torch.testing.assert_close(ours(words, targets), expected)


def test_every_row_is_multiplied_by_the_experts_that_it_is_sent_to() -> None:
    graph = captured(mixtral)
    experts = [op for op, name in enumerate(graph.names) if ".experts/" in name]
    chosen, matrices = 2, 3  # per row, as Mixtral is; gate, up and down
    assert graph.flops[experts].sum() == LAYERS * matrices * 2 * (BATCH * LENGTH * chosen) * WIDTH * INNER


def test_the_embedding_that_is_gpt2s_last_layer_too_is_one_weight() -> None:
    graph = captured(gpt2)
    table = graph.weights.tolist().index(FLOAT * WORDS * WIDTH)
    users = [graph.names[op].rpartition("/")[0] for op, weight in graph.weight_uses if weight == table]
    assert sorted(users) == ["lm_head", "transformer.wte"]


def test_a_cache_that_is_returned_changes_no_cost() -> None:
    def caching() -> Model:
        module, inputs = gpt2()
        return module, inputs | {"use_cache": True, "labels": tokens()}

    def without() -> Model:
        module, inputs = gpt2()
        return module, inputs | {"labels": tokens()}

    graph, expected = captured(caching), captured(without)
    assert graph.flops.sum() == expected.flops.sum() == counted(without)
    assert training_step(graph).flops.sum() == training_step(expected).flops.sum()
    assert training_step(graph).weights.sum() == training_step(expected).weights.sum()


def counted(make: Callable[[], Model]) -> int:
    """The FLOPs of a real run; of attention, the counter knows the products alone, not the CPU's own kernel."""
    module, inputs = make()
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        module.eval()(**inputs)
    return int(counter.get_total_flops())


def _decoding(cache: Callable[[Any], Any]) -> Model:
    """One more word after `LENGTH` - 1 that are in a cache."""
    module, _ = llama()
    filled = cache(module.config)
    with torch.device("cpu"), torch.no_grad():
        module.eval()(tokens(LENGTH - 1), past_key_values=filled, use_cache=True)
    at = {"position_ids": torch.full((BATCH, 1), LENGTH - 1)}
    return module, {"input_ids": tokens(1), "past_key_values": filled, "use_cache": True, **at}


CACHES: dict[str, Callable[[Any], Any]] = {
    "dynamic": lambda config: transformers.DynamicCache(config=config),
    "static": lambda config: transformers.StaticCache(config=config, max_cache_len=LENGTH),
}


@pytest.mark.parametrize("cache", CACHES)
def test_one_word_is_decoded_with_a_cache(cache: str) -> None:
    module, inputs = _decoding(CACHES[cache])
    graph = capture(module, (), inputs, name="decoding")
    width, shared = WIDTH // HEADS, 2  # of a head; heads of keys and values
    projections = 2 * WIDTH * WIDTH + 2 * WIDTH * width * shared + 3 * WIDTH * INNER
    attention = 2 * LENGTH * WIDTH
    assert graph.flops.sum() == 2 * BATCH * (LAYERS * (projections + attention) + WIDTH * WORDS)
    assert graph.flops.sum() == counted(lambda: _decoding(CACHES[cache]))
