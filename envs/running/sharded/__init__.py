"""A step whose replicas hold what belongs to weights in parts, run with PyTorch's fully_shard."""
