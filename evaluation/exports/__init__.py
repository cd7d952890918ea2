"""Exports: a plan as other programs take it, by modules or by layers, simulated again after it was rounded to these."""
