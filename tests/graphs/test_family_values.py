"""Families compute what other implementations of the same models do: of transformers, of PyTorch, or plain ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphs.foundation import by_name

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

WIDTH, HEADS, LENGTH, BATCH, WORDS = 8, 2, 5, 2, 11


def built(spec: str, seed: int = 0) -> tuple[Any, list[Tensor]]:
    """A family's module and inputs with values from a normal distribution or numbers of words and classes."""
    module, inputs = by_name.build("graphs.families", spec)
    module = module.to_empty(device="cpu").train()
    generator = torch.Generator().manual_seed(seed)
    for tensor in [*module.parameters(), *module.buffers()]:
        with torch.no_grad():
            tensor.copy_(torch.randn(tensor.shape, generator=generator) / max(tensor.shape[-1:], default=1) ** 0.5)
    drawn = [
        torch.randn(each.shape, generator=generator)
        if each.is_floating_point()
        else torch.randint(WORDS, each.shape, generator=generator)
        for each in inputs
    ]
    return module, drawn


def renamed(module: nn.Module, names: dict[str, str], dropped: tuple[str, ...] = ()) -> dict[str, Tensor]:
    """The module's weights under other names, which are parts of names here; buffers of ours are dropped."""
    found = {}
    for name, tensor in module.state_dict().items():
        if name in dropped:
            continue
        for old, new in names.items():
            name = name.replace(old, new)
        found[name] = tensor
    return found


def causal(length: int, *, diagonal: int = 1) -> Tensor:
    return torch.full((length, length), -1e30).triu(diagonal)


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def attention_in_three(weights: dict[str, Tensor], joint: str, parts: tuple[str, str, str]) -> dict[str, Tensor]:
    """Weights of queries, keys and values apart."""
    found = {}
    for name, tensor in weights.items():
        if joint not in name:
            found[name] = tensor
            continue
        for part, chunk in zip(parts, tensor.chunk(3), strict=True):
            found[name.replace(joint, part)] = chunk
    return found


def gpt2() -> tuple[Tensor, Tensor]:
    transformers = pytest.importorskip("transformers")
    ours, (words, targets) = built(
        f"transformer:layers=2,width={WIDTH},heads={HEADS},sequence={LENGTH},batch={BATCH},vocabulary={WORDS}"
    )
    ours.mask.copy_(causal(LENGTH))
    names = {
        "tokens.weight": "transformer.wte.weight",
        "positions": "transformer.wpe.weight",
        "layers.": "transformer.h.",
        "attention_norm": "ln_1",
        "feed_forward_norm": "ln_2",
        "attention.query_key_value": "attn.c_attn",
        "attention.out": "attn.c_proj",
        "feed_forward.0": "mlp.c_fc",
        "feed_forward.2": "mlp.c_proj",
        "head.": "lm_head.",
    }
    weights = renamed(ours, names, ("mask",))
    for part in ("weight", "bias"):
        weights[f"transformer.ln_f.{part}"] = weights.pop(f"norm.{part}")
    for name in weights:  # GPT-2 has its matrices the other way around
        if ".c_" in name and name.endswith("weight"):
            weights[name] = weights[name].T
    config = transformers.GPT2Config(
        vocab_size=WORDS,
        n_embd=WIDTH,
        n_layer=2,
        n_head=HEADS,
        n_positions=LENGTH,
        activation_function="gelu",
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    theirs = transformers.GPT2LMHeadModel(config).eval()
    theirs.load_state_dict(weights)
    return ours(words, targets), loss_of(theirs(words).logits, targets)


def bert() -> tuple[Tensor, Tensor]:
    transformers = pytest.importorskip("transformers")
    ours, (words, segments, targets) = built(
        f"bert:layers=2,width={WIDTH},heads={HEADS},sequence={LENGTH},batch={BATCH}"
    )
    ours.mask.zero_()
    ours.places.copy_(torch.arange(LENGTH))
    segments = segments % 2
    names = {
        "tokens": "bert.embeddings.word_embeddings",
        "segments": "bert.embeddings.token_type_embeddings",
        "positions": "bert.embeddings.position_embeddings",
        "layers.": "bert.encoder.layer.",
        "attention_norm": "attention.output.LayerNorm",
        "feed_forward_norm": "output.LayerNorm",
        "attention.out.": "attention.output.dense.",
        "feed_forward.0": "intermediate.dense",
        "feed_forward.2": "output.dense",
        "transform.0": "cls.predictions.transform.dense",
        "transform.2": "cls.predictions.transform.LayerNorm",
    }
    weights = renamed(ours, names, ("mask", "places"))
    for part in ("weight", "bias"):
        weights[f"bert.embeddings.LayerNorm.{part}"] = weights.pop(f"norm.{part}")
    parts = "attention.self.query", "attention.self.key", "attention.self.value"
    weights = attention_in_three(weights, "attention.query_key_value", parts)
    bias = weights.pop("bias")
    head = {"weight": ours.tokens.weight, "bias": bias}
    weights |= {f"cls.predictions.decoder.{name}": tensor for name, tensor in head.items()}
    config = transformers.BertConfig(
        vocab_size=len(bias),
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        layer_norm_eps=1e-5,
    )
    theirs = transformers.BertForMaskedLM(config).eval()
    theirs.load_state_dict(weights | {"cls.predictions.bias": bias})
    return ours(words, segments, targets), loss_of(theirs(words, token_type_ids=segments).logits, targets)


def vit() -> tuple[Tensor, Tensor]:
    transformers = pytest.importorskip("transformers")
    ours, (images, labels) = built(f"vit:layers=2,width={WIDTH},heads={HEADS},image=32,batch={BATCH}")
    ours.mask.zero_()
    names = {
        "patches": "vit.embeddings.patch_embeddings.projection",
        "token": "vit.embeddings.cls_token",
        "positions": "vit.embeddings.position_embeddings",
        "layers.": "vit.layers.",
        "attention_norm": "layernorm_before",
        "feed_forward_norm": "layernorm_after",
        "attention.out": "attention.o_proj",
        "feed_forward.0": "mlp.fc1",
        "feed_forward.2": "mlp.fc2",
    }
    weights = attention_in_three(renamed(ours, names, ("mask",)), "query_key_value", ("q_proj", "k_proj", "v_proj"))
    for part in ("weight", "bias"):
        weights[f"vit.layernorm.{part}"] = weights.pop(f"norm.{part}")
    config = transformers.ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        image_size=32,
        num_labels=1000,
        layer_norm_eps=1e-5,
    )
    theirs = transformers.ViTForImageClassification(config).eval()
    theirs.load_state_dict(weights)
    return ours(images, labels), F.cross_entropy(theirs(images).logits, labels)


def resnet() -> tuple[Tensor, Tensor]:
    """In training, so that batch norms are of the batch."""
    transformers = pytest.importorskip("transformers")
    ours, (images, labels) = built(f"resnet:layers=50,image=64,batch={BATCH}")
    depths = [3, 4, 6, 3]
    places = [f"stages.{stage}.layers.{layer}" for stage, depth in enumerate(depths) for layer in range(depth)]
    weights = {}
    names = {
        "stem.": "resnet.embedder.embedder.convolution.",
        "stem_norm.": "resnet.embedder.embedder.normalization.",
        "classifier": "classifier.1",
        "shortcut.0": "shortcut.convolution",
        "shortcut.1": "shortcut.normalization",
        "reduce_norm": "layer.0.normalization",
        "reduce": "layer.0.convolution",
        "mix_norm": "layer.1.normalization",
        "mix": "layer.1.convolution",
        "expand_norm": "layer.2.normalization",
        "expand": "layer.2.convolution",
    }
    for name, tensor in renamed(ours, names).items():
        head, _, rest = name.partition("blocks.")
        number, _, tail = rest.partition(".")
        weights[head if not rest else f"resnet.encoder.{places[int(number)]}.{tail}"] = tensor
    config = transformers.ResNetConfig(depths=depths, num_labels=1000)
    with torch.device("meta"):
        theirs = transformers.ResNetForImageClassification(config).train()
    theirs.load_state_dict(weights, assign=True)
    return ours(images, labels), F.cross_entropy(theirs(images).logits, labels)


def torchs_gates(weight: Tensor) -> Tensor:
    """Input, forget, new content and output, of input, forget, output and new content."""
    enter, forget, leave, candidate = weight.chunk(4)
    return torch.cat([enter, forget, candidate, leave])


def lstm_cell(inputs: int, weight: Tensor, recurrent: Tensor, bias: Tensor) -> nn.LSTMCell:
    """PyTorch's, with the weights of ours."""
    cell = nn.LSTMCell(inputs, WIDTH)
    given = {"weight_ih": weight, "weight_hh": recurrent, "bias_ih": bias, "bias_hh": torch.zeros_like(bias)}
    cell.load_state_dict({name: torchs_gates(tensor.detach()) for name, tensor in given.items()})
    return cell


def rnnlm() -> tuple[Tensor, Tensor]:
    ours, (words, targets) = built(f"rnnlm:layers=2,steps={LENGTH},hidden={WIDTH},batch={BATCH},vocabulary={WORDS}")
    theirs = nn.LSTM(WIDTH, WIDTH, 2, batch_first=True)
    with torch.no_grad():
        for number, cell in enumerate(ours.layers):
            getattr(theirs, f"weight_ih_l{number}").copy_(torchs_gates(cell.input_to_gates.weight))
            getattr(theirs, f"weight_hh_l{number}").copy_(torchs_gates(cell.hidden_to_gates.weight))
            getattr(theirs, f"bias_ih_l{number}").copy_(torchs_gates(cell.input_to_gates.bias))
            getattr(theirs, f"bias_hh_l{number}").zero_()
    return ours(words, targets), loss_of(ours.head(theirs(ours.embedding(words))[0]), targets)


def gnmt(family: str) -> tuple[Tensor, Tensor]:
    """Of three layers: with PyTorch's cells, as GNMT (Wu et al. 2016) says, and attention as Bahdanau et al. (2015)."""
    ours, (source, target) = built(f"{family}:layers=3,steps={LENGTH},hidden={WIDTH},batch={BATCH},vocabulary={WORDS}")

    def cell(own: Any) -> nn.LSTMCell:
        weight = own.gates.weight
        return lstm_cell(weight.shape[1] - WIDTH, weight[:, :-WIDTH], weight[:, -WIDTH:], own.gates.bias)

    def run(own: Any, inputs: list[Tensor]) -> list[Tensor]:
        made, state = [], None
        for x in inputs:
            state = cell(own)(x, state)
            made.append(state[0])
        return made

    words = list(ours.source(source).unbind(1))
    ahead, back = run(ours.encoder.forwards, words), run(ours.encoder.backwards, words[::-1])
    first = run(ours.encoder.layers[0], [torch.cat([ahead[t], back[-1 - t]], 1) for t in range(LENGTH)])
    second = run(ours.encoder.layers[1], first)
    memory = [x + y for x, y in zip(first, second, strict=True)]  # residual connections begin at the third layer
    decoder, context, logits = ours.decoder, torch.zeros(BATCH, WIDTH), []
    states: list[Any] = [None] * 3
    for word in ours.target(target).unbind(1):
        x, _ = states[0] = cell(decoder.layers[0])(torch.cat([word, context], 1), states[0])
        energies = [decoder.score(torch.tanh(decoder.query(x) + decoder.key(each)))[:, 0].exp() for each in memory]
        shares = torch.stack(energies) / torch.stack(energies).sum(0)
        context = (shares[..., None] * torch.stack(memory)).sum(0)
        y, _ = states[1] = cell(decoder.layers[1])(torch.cat([x, context], 1), states[1])
        z, _ = states[2] = cell(decoder.layers[2])(torch.cat([y, context], 1), states[2])
        logits.append(ours.head(y + z))
    return ours(source, target), loss_of(torch.stack(logits, 1), target)


def vgg() -> tuple[Tensor, Tensor]:
    ours, (images, labels) = built(f"vgg:layers=11,image=32,batch={BATCH}")
    x, weights = images, iter(ours.parameters())
    for convolutions in (1, 1, 2, 2, 2):  # configuration A of Simonyan and Zisserman (2015)
        for _ in range(convolutions):
            x = F.relu(F.conv2d(x, next(weights), next(weights), padding=1))
        x = F.max_pool2d(x, 2, 2)
    x = x.flatten(1)
    for activation in (F.relu, F.relu, lambda y: y):
        x = activation(x @ next(weights).T + next(weights))
    return ours(images, labels), F.cross_entropy(x, labels)


def inception() -> tuple[Tensor, Tensor]:
    """Seven blocks: the image halves, and the channels double, before the fourth and the seventh."""
    ours, (images, labels) = built(f"inception:blocks=7,width=4,image=64,batch={BATCH}")
    weights = iter(ours.parameters())

    def unit(x: Tensor, stride: int = 1) -> Tensor:
        kernel = next(weights)
        x = F.conv2d(x, kernel, None, stride, kernel.shape[-1] // 2)
        x = (x - x.mean((0, 2, 3), True)) / (x.var((0, 2, 3), correction=0, keepdim=True) + 1e-5).sqrt()
        return F.relu(x * next(weights)[:, None, None] + next(weights)[:, None, None])

    x = F.max_pool2d(unit(unit(images, 2)), 3, 2, 1)
    assert x.shape[2:] == (16, 16)
    for block in range(7):
        if block in (3, 6):
            x = F.max_pool2d(x, 3, 2, 1)
        x = torch.cat([unit(x), unit(unit(x)), unit(unit(unit(x))), unit(F.avg_pool2d(x, 3, 1, 1))], 1)
    assert x.shape[1:] == (4 * 4 * 2**2, 4, 4)
    logits = x.mean((2, 3)) @ next(weights).T + next(weights)
    return ours(images, labels), F.cross_entropy(logits, labels)


def wavenet() -> tuple[Tensor, Tensor]:
    """Each output from the two inputs that it reads, one of them as many steps before as the dilation says."""
    length, channels = 9, 4
    ours, (signal,) = built(f"wavenet:stacks=1,layers=3,channels={channels},length={length},batch={BATCH}")
    x, total = ours.embedding(signal[:, :-1]), torch.zeros(BATCH, length, channels)
    for layer, dilation in zip(ours.layers, (1, 2, 4), strict=True):
        before = torch.cat([torch.zeros(BATCH, dilation, channels), x], 1)[:, :length]
        weight = layer.filter_and_gate.weight
        y = before @ weight[:, :, 0].T + x @ weight[:, :, 1].T + layer.filter_and_gate.bias
        y = y[..., :channels].tanh() * y[..., channels:].sigmoid()
        total = total + y @ layer.skip.weight[..., 0].T + layer.skip.bias
        x = x + y @ layer.residual.weight[..., 0].T + layer.residual.bias
    hidden = F.relu(F.relu(total) @ ours.hidden.weight[..., 0].T + ours.hidden.bias)
    logits = hidden @ ours.head.weight[..., 0].T + ours.head.bias
    return ours(signal), loss_of(logits, signal[:, 1:])


def transformer_xl() -> tuple[Tensor, Tensor]:
    """Dai et al. (2019), section 3.3: each score by itself, of the row of the distance between the two positions."""
    spec = f"transformer_xl:layers=2,width={WIDTH},heads={HEADS},sequence={LENGTH},batch={BATCH},vocabulary={WORDS}"
    ours, (words, targets, memory) = built(spec)
    ours.mask.copy_(causal(2 * LENGTH)[LENGTH:])
    size, x = WIDTH // HEADS, ours.tokens(words)
    for layer, remembered in zip(ours.layers, memory, strict=True):
        attention, seen = layer.attention, torch.cat([remembered, x], 1)
        query = attention.query(x).unflatten(-1, (HEADS, size))
        key, value = (each.unflatten(-1, (HEADS, size)) for each in attention.key_value(seen).chunk(2, -1))
        distance = attention.distance(ours.distances).unflatten(-1, (HEADS, size)).flip(0)  # from 0 on
        content, relative = attention.content_bias[:, 0], attention.distance_bias[:, 0]
        mixed = torch.zeros(BATCH, LENGTH, HEADS, size)
        for i in range(LENGTH):
            now = LENGTH + i
            scores = [
                ((query[:, i] + content) * key[:, j] + (query[:, i] + relative) * distance[now - j]).sum(-1)
                for j in range(now + 1)
            ]
            share = (torch.stack(scores, 1) / math.sqrt(size)).softmax(1)
            mixed[:, i] = (share[..., None] * value[:, : now + 1]).sum(1)
        x = layer.attention_norm(x + attention.out(mixed.flatten(2)))
        first, _, last = layer.feed_forward
        x = layer.feed_forward_norm(x + last(first(x).clamp_min(0.0)))
    return ours(words, targets, memory), loss_of(ours.head(x), targets)


FORMS: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
    "transformer": gpt2,
    "bert": bert,
    "vit": vit,
    "resnet": resnet,
    "rnnlm": rnnlm,
    "gnmt": lambda: gnmt("gnmt"),
    "nmt": lambda: gnmt("nmt"),
    "vgg": vgg,
    "inception": inception,
    "wavenet": wavenet,
    "transformer_xl": transformer_xl,
}


@pytest.mark.parametrize("family", FORMS)
def test_a_family_computes_what_another_implementation_does(family: str) -> None:
    with torch.no_grad():
        ours, theirs = FORMS[family]()
    assert torch.isfinite(ours)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
