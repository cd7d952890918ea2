"""Floor 1, what a placement costs: plans, simulation, cost models, bounds, rewards and Gymnasium environments.

Importing this package registers the environments: `gymnasium.make("envs:Placeto-v0", graph=..., cluster=...)`.
"""

from gymnasium.envs.registration import register

register("Placeto-v0", entry_point="envs.iterative:PlacetoEnv")
register("GDP-v0", entry_point="envs.one_shot:GdpEnv")
