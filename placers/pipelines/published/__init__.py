"""The planners of papers: DAPPLE, PipeDream and PipeTransformer, with their formulas."""
