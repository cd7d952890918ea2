"""Floor 1, what a placement costs: plans, simulation, cost models, bounds, rewards and Gymnasium environments.

Importing this package registers the environments: `gymnasium.make("envs:Placeto-v0", graph=..., cluster=...)`,
or many episodes side by side by `gymnasium.make_vec("envs:Placeto-v0", num_envs=16, ...)`.
"""

from gymnasium.envs.registration import register

register("Placeto-v0", entry_point="envs.iterative:PlacetoEnv", vector_entry_point="envs.vector:PlacetoVectorEnv")
register("GDP-v0", entry_point="envs.one_shot:GdpEnv")
