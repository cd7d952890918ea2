"""A model that is run by a plan: its own code, each call on the device that the plan says."""
