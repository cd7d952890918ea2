"""The verbs of the command line and of Python, their arguments, and problems made of them."""
