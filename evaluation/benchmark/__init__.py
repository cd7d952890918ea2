"""placelab-bench-1: frozen problems, and results on them that anybody can verify."""
