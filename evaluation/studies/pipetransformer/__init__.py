"""The study of PipeTransformer: what each of its parts is worth, simulated."""
