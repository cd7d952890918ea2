"""Expansion: a plan with replicas, stages and micro-batches, written out as a larger op graph and a placement of it.

The engine times the larger graph as it times any other. Its ops are copies of the problem's ops, one for each
micro-batch and replica, and ops that take no time: slices of outputs, steps of collective operations, gates.
"""
