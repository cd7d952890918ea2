"""A step run op by op, as a plan places each."""
