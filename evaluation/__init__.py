"""Floor 4, which placer is best: comparisons, statistics, tables, plots and reports."""
