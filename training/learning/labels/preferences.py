"""Preference pairs: the best sample of a problem is to be likelier than each of its others (Liao et al. 2025, "BOPO").

Every pair counts until the policy tells the two apart, the more the further they are from each other, and there is no
reference policy. A pair of samples, w the best and l another, costs, with p the mean log-probability per decision,

    -log sigmoid(seconds_l / seconds_w * (p_w - p_l))

Ours: all others are paired with the best instead of a choice among them, and what does not fit has a ratio, too.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

HIGHEST_RATIO = 4.0  # of seconds; counts also for what does not fit (ours)
EQUAL = 1e-9  # of the seconds: samples nearer to the best than that are no worse


def preference(likelihood: Tensor, step_seconds: Tensor) -> Tensor:
    """Mean log-probability with which the best samples are preferred: 0 at best, and 0 where there is no pair.

    - `likelihood`: (problems, samples) mean log-probability per decision.
    - `step_seconds`: (problems, samples); infinite for what does not fit.
    """
    least, best = step_seconds.min(dim=1, keepdim=True)
    ratio = (step_seconds / least.clamp_min(1e-30)).clamp_max(HIGHEST_RATIO)
    is_pair = torch.isfinite(least) & (step_seconds > least * (1 + EQUAL))
    preferred = logsigmoid(ratio.nan_to_num(1.0).to(likelihood.dtype) * (likelihood.gather(1, best) - likelihood))
    pairs = is_pair.sum(dim=1)
    of_problems = (preferred * is_pair).sum(dim=1) / pairs.clamp_min(1)
    mean: Tensor = of_problems.sum() / (pairs > 0).sum().clamp_min(1)
    return mean
