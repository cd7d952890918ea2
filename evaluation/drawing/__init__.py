"""Figures: step times, learning curves, timelines, graphs."""
