"""Elastic pipelines (PipeTransformer, He et al. 2021): they shrink and multiply while layers freeze."""
