"""ColocRL (Mirhoseini et al. 2017)."""
