"""Timelines: what happens when in a step, by op, by pass and as text."""
