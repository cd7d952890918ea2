"""The study of optimal orders: what fixed rules lose over plans whose order is free, proven on small graphs."""
