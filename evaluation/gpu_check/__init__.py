"""What placelab says about GPUs, measured on one: kernels, steps, memory, host time, copies, placements, processes."""
