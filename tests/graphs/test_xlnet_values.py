"""XLNet's family attends to what is before and behind, as transformers does."""

import pytest
import torch
from torch import Tensor

from tests.graphs.test_family_values import BATCH, HEADS, LENGTH, WIDTH, built, loss_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@torch.no_grad()
def test_it_computes_what_the_attention_of_transformers_does() -> None:
    """By the attention of transformers, whose first distance is `sequence`; in each stream, as section 2.6 has it."""
    modelling = pytest.importorskip("transformers.models.xlnet.modeling_xlnet")
    ours, (words, targets) = built(f"xlnet:layers=2,width={WIDTH},heads={HEADS},sequence={LENGTH},batch={BATCH}")
    ours.sees_itself.copy_(torch.zeros(LENGTH, LENGTH))
    ours.sees_others.copy_(torch.eye(LENGTH) * -1e30)
    theirs = modelling.XLNetRelativeAttention(modelling.XLNetConfig(d_model=WIDTH, n_head=HEADS, dropout=0.0))
    content = ours.tokens(words)
    query = ours.query.expand_as(content)
    for layer in ours.layers:
        attention = layer.attention
        theirs.r_w_bias.copy_(attention.content_bias[:, 0])
        theirs.r_r_bias.copy_(attention.distance_bias[:, 0])
        before = torch.zeros(1, WIDTH)  # the distance `sequence`, at which there is nothing
        distances = torch.cat([before, attention.distance(ours.distances)[:-1]])
        distances = distances.view(2 * LENGTH, 1, HEADS, -1).expand(-1, BATCH, -1, -1)
        key, value = (_heads(part) for part in attention.key_value(content).chunk(2, -1))
        made = []
        for stream, hidden in ((query, ours.sees_others), (content, ours.sees_itself)):
            mask = (hidden < 0).float()[..., None, None]
            mixed = theirs.rel_attn_core(_heads(attention.query(stream)), key, value, distances, attn_mask=mask)
            x = layer.attention_norm(stream + attention.out(mixed.flatten(2).transpose(0, 1)))
            first, _, last = layer.feed_forward
            made.append(layer.feed_forward_norm(x + last(first(x).clamp_min(0.0))))
        query, content = made
    logits = query @ ours.tokens.weight.T + ours.bias
    torch.testing.assert_close(ours(words, targets), loss_of(logits, targets), rtol=1e-4, atol=1e-5)


def _heads(x: Tensor) -> Tensor:
    """(length, batch, heads, size), as transformers has it."""
    return x.view(BATCH, LENGTH, HEADS, -1).transpose(0, 1)
