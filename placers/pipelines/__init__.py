"""Pipelines that a formula proposes, judged by the engine, and improved by local search."""
