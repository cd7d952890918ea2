"""A step run as a pipeline of stages, with replicas."""
