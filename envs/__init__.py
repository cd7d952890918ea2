"""Floor 1, what a placement costs: plans, simulation, cost models, bounds, rewards and Gymnasium environments."""
