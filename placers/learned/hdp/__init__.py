"""HDP (Mirhoseini et al. 2018)."""
