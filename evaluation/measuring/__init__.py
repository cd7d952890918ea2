"""Plans that were run, next to their simulation, and calibration."""
