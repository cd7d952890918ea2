"""From a PyTorch module to an op graph: traced, costed, and with the backward pass of a training step."""
