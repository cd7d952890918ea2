"""Families of models by name. An extension folder: one file, one family.

A file has `build(*, knobs) -> (module, example inputs)`, made on the meta device, where nothing is allocated, and
literals: `TRAIN: tuple[str, ...]`, the knobs of graphs to learn from, `TEST: tuple[str, ...]`, those of unseen ones,
and `CONFIGURATIONS: dict[str, str]`, the knobs of configurations that papers name, which a spec may name too
(`resnet:resnet-50,batch=32`), with `PARAMETERS: dict[str, float]` for those whose parameters are published. The
module's output is its loss. Knobs are chosen for devices of 16 GB: some graphs fit on one, others on no less than two
or four.
"""
