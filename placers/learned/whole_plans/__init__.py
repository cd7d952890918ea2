"""Policies of whole plans: stages, their devices, micro-batches, order of passes and recomputation."""
