"""What a plan means for the numbers: the parts of a divided training step, computed in PyTorch in one process.

What there is, each file on top of those before it:

    boxed           parts of tensors, and how they are joined
    arrivals        what an op of an expanded graph has, of what the ops before it hold
    computing       what the shards of an op make of the parts of tensors that they read
    sharded_step    a whole step
"""
