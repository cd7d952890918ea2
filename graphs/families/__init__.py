"""Families of models by name. An extension folder: one file, one family.

A file has `build(*, knobs) -> (module, example inputs)`, made on the meta device, where nothing is allocated, and two
literals: `TRAIN: tuple[str, ...]`, the knobs of graphs to learn from, and `TEST: tuple[str, ...]`, those of unseen
ones. The module's output is its loss. Knobs are chosen for devices of 16 GB: some graphs fit on one, others on no
less than two or four, in both lists.
"""
