"""Learned placers: one folder each; what several share is here."""
