"""The study of searches that begin with a policy, at every grain."""
