"""What is trained on: families, variants of their graphs, and random problems."""
