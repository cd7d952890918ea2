"""Placeto (Addanki et al. 2019)."""
