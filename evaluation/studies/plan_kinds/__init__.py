"""The study of kinds of plans: op placement, data parallelism, pipelines, and mixtures of the last two."""
