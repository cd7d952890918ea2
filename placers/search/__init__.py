"""Search: its starts, its moves, the best placement so far, and how it is stopped and resumed."""
