"""Study: predictions against steps that others measured on real GPUs and published."""
