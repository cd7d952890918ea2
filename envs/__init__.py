"""Floor 1, what a placement costs: plans, simulation, cost models, bounds, rewards and Gymnasium environments.

Importing this package registers the environments by four ids: "envs:Placeto-v0" moves one op after another
(`envs.gym.iterative`), "envs:GDP-v0" places all of them at once (`envs.gym.one_shot`), "envs:Replacement-v0" places
again what runs already (`envs.gym.replacement`), "envs:PipelinePlan-v0" makes plans that are pipelines
(`envs.gym.pipeline_plans`). `gymnasium.make("envs:GDP-v0", graph=..., cluster=...)` makes one,
`gymnasium.make_vec("envs:Placeto-v0", num_envs=16, ...)` many episodes in parallel.
"""

from gymnasium.envs.registration import register

register(
    "Placeto-v0", entry_point="envs.gym.iterative:PlacetoEnv", vector_entry_point="envs.gym.vector:PlacetoVectorEnv"
)
register("GDP-v0", entry_point="envs.gym.one_shot:GdpEnv")
register("Replacement-v0", entry_point="envs.gym.replacement:ReplacementEnv")
register(
    "PipelinePlan-v0", entry_point="envs.gym.pipeline_plans:PipelinePlanEnv",
    vector_entry_point="envs.gym.vector:PipelinePlanVectorEnv",
)  # fmt: skip
