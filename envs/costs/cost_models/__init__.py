"""Cost models: an extension folder; one file, one cost model (`envs.costs.costs`)."""

from envs.costs.costs import checked as checked
