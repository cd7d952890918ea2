"""What the order of ready ops decides: step times, rankings of placers, searches, and the default of `place`."""
