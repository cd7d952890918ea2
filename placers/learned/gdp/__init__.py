"""GDP (Zhou et al. 2019)."""
