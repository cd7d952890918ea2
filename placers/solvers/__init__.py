"""Solvers of others made ready for placement: METIS and KaHIP, CP-SAT."""
