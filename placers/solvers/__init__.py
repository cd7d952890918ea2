"""Solvers: list scheduling, partitioning by METIS and KaHIP, and CP-SAT."""
