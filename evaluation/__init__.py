"""Floor 4, who is best: comparisons, statistics, tables, plots and reports."""
