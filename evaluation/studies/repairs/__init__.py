"""The study of repairs: neural_lns against annealing from the same policy, at equal simulations and equal seconds."""
