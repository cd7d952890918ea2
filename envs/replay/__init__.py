"""Replay: a captured training step in the order of a plan, as a part of the user's own loop."""
