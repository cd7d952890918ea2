"""Tables of plans, steps, memory and graphs, for terminals and reports."""
