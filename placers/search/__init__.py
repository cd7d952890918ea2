"""Search: what begins it, what it changes, the best placement so far, and how it is stopped and resumed."""
