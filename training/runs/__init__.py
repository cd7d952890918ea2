"""Runs: started, saved, resumed, selected by validation, swept and fine-tuned."""
