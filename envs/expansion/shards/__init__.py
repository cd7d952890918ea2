"""Ops that are divided by their indices, written out: a shard for each device, and what shards send each other."""
