"""Running a plan for real: one process per device, and what each step of it took.

Each process runs its part of a training step (`running_step`), in one of several ways, by what the plan decides.
"""
