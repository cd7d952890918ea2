"""Floor 0, what is placed and where: op graphs, clusters, problems, capture, grouping, families, files."""
