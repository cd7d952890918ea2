"""Networks: each file's `build` returns a module from a Batch to logits (problems, units, devices)."""
