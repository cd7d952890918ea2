"""Gymnasium environments over problems: Placeto's MDP, GDP's one-shot, and many episodes at once.

Importing this package registers the environments by two ids: "envs.gym:Placeto-v0" moves one op after another
(`envs.gym.iterative`), "envs.gym:GDP-v0" places all of them at once (`envs.gym.one_shot`).
`gymnasium.make("envs.gym:GDP-v0", graph=..., cluster=...)` makes one, and
`gymnasium.make_vec("envs.gym:Placeto-v0", num_envs=16, ...)` many episodes in parallel.
"""

from gymnasium.envs.registration import register

register(
    "Placeto-v0", entry_point="envs.gym.iterative:PlacetoEnv", vector_entry_point="envs.gym.vector:PlacetoVectorEnv"
)
register("GDP-v0", entry_point="envs.gym.one_shot:GdpEnv")
