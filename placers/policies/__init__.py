"""What learned placers share: what they see of a problem, and how logits become placements."""
