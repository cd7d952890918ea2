"""Parcels: what a pass makes for other stages is sent when the whole pass has ended, not as it is computed.

So do torch.distributed.pipelining and Megatron-LM: a stage's forward or backward pass is one call of PyTorch, and what
it returns is sent then. A backward pass that the schedule divides sends when its first part has ended.

    pass of stage 1    b.grad  b.grad_weight  a.grad  a.grad_weight |
    sent                                      (a.grad)              parcel ---> stage 0
"""

import numpy as np

from envs.expansion.draft import Draft
from envs.expansion.expanded import Role
from envs.expansion.pass_lists import WEIGHT_GRADIENT, PassLists
from graphs.op_graph import Bools, Ints


def send_at_end(draft: Draft, lists: PassLists, number: Ints, sinks: Ints) -> None:
    """Let what ops of a pass send to other stages wait for the end of the pass.

    `number` is the pass of each op of the draft so far, or -1, and `sinks` are what no op of the own pass reads.
    """
    number = np.append(number, np.full(draft.ops - len(number), -1))
    leaves, device = _leaves(draft, lists, number), draft.column("device")
    edges, is_message = draft.edges, ~np.isnan(draft.messages)
    carried = leaves & (device[edges[:, 0]] != device[edges[:, 1]])
    slices = edges[leaves & ~carried]  # which are cut when the pass has ended
    waiting = [np.stack([number[slices[:, 0]], slices[:, 1]])]
    for message in (False, True):
        these = np.flatnonzero(carried & (is_message == message))
        sent, which = np.unique(edges[these, 0], return_inverse=True)
        share = np.zeros(len(sent)) if message else draft.layout.share[sent]
        parcels = draft.add_like(sent, Role.PARCEL, output_share=share)
        draft.connect(sent, parcels, control=message)
        draft.reroute(these, parcels[which])
        waiting.append(np.stack([number[sent], parcels]))
    _wait(draft, lists, number, sinks, np.concatenate(waiting, axis=1))


def _leaves(draft: Draft, lists: PassLists, number: Ints) -> Bools:
    """(edges,) whether each carries what an op of a pass makes for another stage's device, or slices are cut from.

    Gradients of weights are none of a pass's results: they are summed up, or updated with.
    """
    producer, consumer = draft.edges.T
    role, stage, origin, device = map(draft.column, ("role", "stage", "origin", "device"))
    is_data = ~draft.control
    crosses = is_data & (device[producer] != device[consumer])
    crosses &= (stage[producer] >= 0) & (stage[consumer] >= 0) & (stage[producer] != stage[consumer])
    is_cut = np.zeros(draft.ops, np.bool_)
    is_cut[producer[crosses & (role[producer] == Role.SLICE)]] = True
    is_result = (role == Role.WORK) & (number >= 0)
    is_result[is_result] = lists.kind_of_ops[origin[is_result]] != WEIGHT_GRADIENT
    return np.asarray(is_result[producer] & (crosses | (is_data & is_cut[consumer])))


def _wait(draft: Draft, lists: PassLists, number: Ints, sinks: Ints, waiting: Ints) -> None:
    """Edges through a gate from the sinks of each pass to the ops that wait for its end: (2, ops) pass and op."""
    passes, which = np.unique(waiting[0], return_inverse=True)
    gates = draft.add(
        len(passes), Role.GATE, lists.device[passes], micro_batch=lists.micro_batch[passes], stage=lists.stage[passes]
    )
    last = sinks[np.isin(number[sinks], passes)]
    draft.connect(last, gates[np.searchsorted(passes, number[last])], control=True)
    draft.connect(gates[which], waiting[1], control=True)
