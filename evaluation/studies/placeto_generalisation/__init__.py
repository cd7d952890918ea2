"""Whether a policy of Placeto serves graphs that it never saw (Addanki et al. 2019, section 4)."""
