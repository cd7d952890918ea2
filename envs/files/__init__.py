"""Files of plans, and simulated steps in the formats of other programs."""
