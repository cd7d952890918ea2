"""Splitting a model into the stages of a pipeline: the dynamic programs of PipeDream and its kin."""
