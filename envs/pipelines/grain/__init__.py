"""Plans of pipelines at the granularity of stages, with a hundred times fewer ops than op by op."""
