"""The study of published plans: what NVIDIA recommends, and what Sailor's planners can say, beside the planner's."""
