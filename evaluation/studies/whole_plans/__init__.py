"""The study of whole plans: a policy of pipelines against the planner, on kinds of models that it never saw."""
