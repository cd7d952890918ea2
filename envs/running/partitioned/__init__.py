"""A step whose tensors are divided among devices, run with DTensor."""
