"""The document of the study of order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from envs.orders import GIVEN
from envs.robustness import DRAWS, NOISE
from evaluation.studies.cheap_placers import CHEAP
from evaluation.studies.document import save_document
from evaluation.studies.order import defaults, searches
from evaluation.studies.order.cases import Size
from evaluation.studies.order.ranking_findings import RankingFindings, policy_rows
from evaluation.studies.order.rule_findings import ALLOWED, RuleFindings
from evaluation.studies.order.rules import FEW_DRAWS, PLACERS, RULES, SHAKEN
from evaluation.studies.order.search_findings import BEST_RULE, DefaultFindings, SearchFindings, targets
from evaluation.studies.released.parts import BEST, FEW, GREEDY
from graphs.problem import DEFAULT_ORDER, FIFO

SHOWN = {GREEDY: "policy, greedy", BEST: f"policy, best of {FEW}"}
MOST_LOSSES = 20  # problems in a list of losses


def save(
    rules: RuleFindings, found: SearchFindings, placed: DefaultFindings, *,
    folder: Path, command: str, size: Size, suites: Sequence[str],
) -> Path:  # fmt: skip
    """Write `order.md` into a folder."""
    return save_document(
        "order", "order.md", folder, {},
        command=command, size=size, suites=suites, rules=rules, rankings=RankingFindings(rules), searches=found,
        defaults=placed, targets=targets(found, placed), names=RULES, placers=PLACERS, cheap=CHEAP,
        shown={placer: SHOWN.get(placer, placer) for placer in PLACERS}, policy_rows=policy_rows(),
        fifo=FIFO, default=DEFAULT_ORDER, own=GIVEN, noise=NOISE, draws=DRAWS, few_draws=FEW_DRAWS,
        noises={"ties": "ties broken at random", "shaken": f"noise of {SHAKEN:.1%}"}, allowed=ALLOWED,
        kinds=searches, now=defaults.NOW, earlier=defaults.EARLIER, earlier_groups=defaults.EARLIER_GROUPS,
        earlier_placer=defaults.EARLIER_PLACER, best_rule=BEST_RULE, most_losses=MOST_LOSSES,
    )  # fmt: skip
