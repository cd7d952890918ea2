"""Floor 2, who decides: anything that turns a problem into a plan. An extension folder: one file, one placer."""

from placers.contract.placer import checked as checked
